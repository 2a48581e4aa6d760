"""The attention network against its dense-matrix form, with halos, empty and in bf16."""

from typing import Any

import pytest
import torch

from bigtrk.models.attention_gnn import AttentionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import AttentionGNNConfig
from tests.models import checks
from tests.models.graphs import F, G, gradients, make_graph
from tests.oracle.attention_gnn import ReferenceAttention, our_attention_name

OPTIONS: list[dict[str, Any]] = [
    {},
    {"layer_norm": False},
    {"edge_features": False},
    {"mlp_layers": 4},
    {"layers": 1, "mlp_layers": 1},
]
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
each_recompute = pytest.mark.parametrize("recompute", ["none", "layer"])


def make_model(**options: Any) -> AttentionGNN:
    torch.manual_seed(0)
    return AttentionGNN(AttentionGNNConfig(**{"hidden": 6, "layers": 3, **options}), F, G)


def dense_form(model: AttentionGNN) -> ReferenceAttention:
    """The reference in float64 with the weights of `model`."""
    reference = ReferenceAttention(model.config, F, G).double()
    ours = model.state_dict()
    names = {name: our_attention_name(name) for name in reference.state_dict()}
    assert sorted(names.values()) == sorted(ours)
    reference.load_state_dict({name: ours[own].double() for name, own in names.items()})
    return reference


@each_option
@each_recompute
def test_equals_the_dense_matrix_form(options: dict[str, Any], recompute: str) -> None:
    model = make_model(recompute=recompute, **options).double()
    x, edge_features, edge_index = make_graph()
    logits = model(x, edge_features, edge_index, len(x), no_exchange)
    reference = dense_form(model)
    expected = reference(x, edge_features, edge_index)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)
    found, wanted = gradients(model, logits), gradients(reference, expected)
    wanted = {our_attention_name(name): gradient for name, gradient in wanted.items()}
    checks.same_gradients(model, found, wanted)


@each_option
@pytest.mark.parametrize("n_nodes", [0, 5])
def test_no_edges_give_every_parameter_a_gradient_of_zero(
    options: dict[str, Any], n_nodes: int
) -> None:
    checks.no_edges_give_gradients_of_zero(make_model(**options), n_nodes)


@each_recompute
def test_a_sector_with_halo_computes_the_whole_graphs_logits(recompute: str) -> None:
    """Recomputation exchanges nothing."""
    model = make_model(recompute=recompute).double()
    expected, whole = checks.a_sector_has_the_whole_graphs_logits(model)
    gradients(model, expected)
    assert len(whole.seen) == 3


def test_recomputation_keeps_the_logits_of_edges_alone() -> None:
    one, two = (_kept_bytes("layer", n_edges) for n_edges in (2000, 4000))
    logits = 3 * 2000 * 4
    assert two - one == logits
    assert _kept_bytes("none", 4000) - _kept_bytes("none", 2000) > 30 * logits


def _kept_bytes(recompute: str, n_edges: int) -> int:
    model = make_model(hidden=32, recompute=recompute)
    return checks.n_bytes(checks.kept_tensors(model, *make_graph(20, n_edges)))


@each_recompute
def test_bf16_stays_near_float32(recompute: str) -> None:
    half = make_model(hidden=32, precision="bf16", recompute=recompute)
    checks.bf16_stays_near_float32(make_model(hidden=32, recompute=recompute), half)


def test_edges_may_lie_in_any_order_of_memory() -> None:
    """A graph's edge_index may be the transpose of an array that was read."""
    model = make_model()
    x, edge_features, edge_index = make_graph()
    for ends in (edge_index, edge_index.T.contiguous().T):
        logits = model(x.float(), edge_features.float(), ends, len(x), no_exchange)
    inputs = x.float(), edge_features.float(), edge_index, len(x), no_exchange
    assert torch.equal(model(*inputs), logits)
