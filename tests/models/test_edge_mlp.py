"""The MLP of single edges, written out, without edges, and refusing bad ones."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.mlps import EdgeMLP
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import EdgeMLPConfig
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
    assert found.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in found.items():
        scale = float(wanted[name].abs().max())
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-12 * scale, msg=name)


def test_no_edges_give_every_parameter_a_gradient_of_zero() -> None:
    model, no_edges = make_model(), torch.zeros(2, 0, dtype=torch.int64)
    logits = model(torch.ones(5, F), torch.zeros(0, G), no_edges, 5, no_exchange)
    assert logits.shape == (0,)
    found = gradients(model, logits)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    assert all(gradient.abs().sum() == 0 for gradient in found.values())


@each_recompute
def test_bf16_stays_near_float32(recompute: str) -> None:
    x, edge_features, edge_index = make_graph(30, 300)
    inputs = (x.float(), edge_features.float(), edge_index, len(x), no_exchange)
    expected = make_model(hidden=32, recompute=recompute)(*inputs)
    logits = make_model(hidden=32, recompute=recompute, precision="bf16")(*inputs)
    assert logits.dtype == torch.float32
    assert 0 < (logits - expected).std() < 0.1 * expected.std()
