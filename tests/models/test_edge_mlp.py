"""The MLP of single edges, written out, without edges, and refusing bad ones."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.mlps import EdgeMLP
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import EdgeMLPConfig
from tests.models import checks
from tests.models.graphs import F, G, gradients, make_graph

each_recompute = pytest.mark.parametrize("recompute", ["none", "layer", "chunk"])


def make_model(**options: Any) -> EdgeMLP:
    torch.manual_seed(0)
    return EdgeMLP(EdgeMLPConfig(**{"hidden": 6, **options}), F, G)


def written_out(model: EdgeMLP, x: Tensor, edge_features: Tensor, edge_index: Tensor) -> Tensor:
    weights = dict(model.network.named_parameters())
    values = torch.cat([edge_features, x[edge_index[0]], x[edge_index[1]]], dim=1)
    for k in range(model.config.mlp_layers):
        values = values @ weights[f"mlp_{k}_weight"].T + weights[f"mlp_{k}_bias"]
        values = layer_norm(values, values.shape[-1:]).clamp(min=0)
    return (values @ weights["output_weight"].T + weights["output_bias"])[:, 0]


@each_recompute
@pytest.mark.parametrize("mlp_layers", [1, 3])
def test_equals_the_mlp_written_out(recompute: str, mlp_layers: int) -> None:
    model = make_model(recompute=recompute, mlp_layers=mlp_layers).double()
    graph = make_graph()
    logits, expected = model(*graph, len(graph[0]), no_exchange), written_out(model, *graph)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    found, wanted = gradients(model, logits), gradients(model, expected)
    checks.same_gradients(model, found, wanted)


def test_no_edges_give_every_parameter_a_gradient_of_zero() -> None:
    checks.no_edges_give_gradients_of_zero(make_model())


@each_recompute
def test_bf16_stays_near_float32(recompute: str) -> None:
    half = make_model(hidden=32, recompute=recompute, precision="bf16")
    checks.bf16_stays_near_float32(make_model(hidden=32, recompute=recompute), half)
