"""The Interaction GNN against its algorithm written out, for every option, with halos and empty."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.edges import states
from bigtrk.models.edges.states import Recompute
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import InteractionGNNConfig
from tests.models import checks
from tests.models.graphs import F, G, gradients, make_graph

OPTIONS: list[dict[str, Any]] = [
    {},
    {"shared_weights": True},
    {"shared_weights": True, "layers": 1},
    {"concatenate": False},
    {"in_out": False},
    {"concatenate": False, "in_out": False, "mlp_layers": 1},
    {"layers": 1, "mlp_layers": 3},
    {"pt_head": True},
    # As wide as what the heads make, which then may take the place of the edges.
    {"pt_head": True, "hidden": 2, "mlp_layers": 1},
]
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def make_model(pt_head: bool = False, **options: Any) -> InteractionGNN:
    torch.manual_seed(0)
    config = InteractionGNNConfig(**{"hidden": 6, "layers": 3, **options})
    return InteractionGNN(config, F, G, pt_head)


def written_out(
    model: InteractionGNN, x: Tensor, edge_features: Tensor, edge_index: Tensor
) -> Tensor:
    """Algorithm 1 with every concatenation and an explicit loop over edges for the sums."""
    config, state = model.config, dict(model.named_parameters())

    def mlp(name: str, values: Tensor) -> Tensor:
        for k in range(config.mlp_layers):
            weight, bias = (state[f"{name}_{k}_{kind}"] for kind in ("weight", "bias"))
            values = values @ weight.T + bias
            if k + 1 < config.mlp_layers:
                values = layer_norm(values, values.shape[-1:])
            values = values.clamp(min=0)
        return values

    x0 = x = mlp("node_encoder.mlp", x)
    e0 = e = mlp("edge_encoder.mlp", edge_features)
    for i in range(config.layers):
        layer = f"layers.{0 if config.shared_weights else i}"
        if config.concatenate:
            x, e = torch.cat([x, x0], 1), torch.cat([e, e0], 1)
        e = mlp(f"{layer}.edge_mlp", torch.cat([e, x[edge_index[0]], x[edge_index[1]]], 1))
        if i + 1 == config.layers:
            break
        incoming = [e.new_zeros(config.hidden) for _ in x]
        outgoing = [e.new_zeros(config.hidden) for _ in x]
        for k, (source, destination) in enumerate(edge_index.T.tolist()):
            incoming[destination] = incoming[destination] + e[k]
            outgoing[source] = outgoing[source] + e[k]
        sums = [torch.stack(incoming), torch.stack(outgoing)]
        x = mlp(f"{layer}.node_mlp", torch.cat([*(sums if config.in_out else [sum(sums)]), x], 1))
    hidden = mlp("decoder.mlp", e) @ state["decoder.transform_weight"].T
    hidden = layer_norm(hidden + state["decoder.transform_bias"], hidden.shape[-1:]).clamp(min=0)
    heads = [head for head in ("output", "pt") if f"decoder.{head}_weight" in state]
    outputs = [
        hidden @ state[f"decoder.{head}_weight"][0] + state[f"decoder.{head}_bias"]
        for head in heads
    ]
    return torch.stack(outputs, dim=1) if len(heads) > 1 else outputs[0]


@each_option
@pytest.mark.parametrize("recompute", get_args(Recompute))
def test_equals_the_algorithm_written_out(options: dict[str, Any], recompute: str) -> None:
    model = make_model(recompute=recompute, **options).double()
    x, edge_features, edge_index = make_graph()
    logits = model(x, edge_features, edge_index, len(x), no_exchange)
    expected = written_out(model, x, edge_features, edge_index)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-13)
    found, wanted = gradients(model, logits), gradients(model, expected)
    checks.same_gradients(model, found, wanted)


@each_option
@pytest.mark.parametrize("n_nodes", [0, 5])
def test_no_edges_give_every_parameter_a_gradient_of_zero(
    options: dict[str, Any], n_nodes: int
) -> None:
    shape = (0, 2) if "pt_head" in options else (0,)
    checks.no_edges_give_gradients_of_zero(make_model(**options), n_nodes, shape)


@each_option
def test_a_sector_with_halo_computes_the_whole_graphs_logits(options: dict[str, Any]) -> None:
    checks.a_sector_has_the_whole_graphs_logits(make_model(**options).double())


def test_a_second_head_and_an_outer_autocast_change_nothing() -> None:
    x, edge_features, edge_index = make_graph()
    inputs = (x.float(), edge_features.float(), edge_index, len(x), no_exchange)
    alone, both = make_model(), make_model(True)
    weights = alone.state_dict()
    added = both.state_dict().keys() - weights.keys()
    assert added == {"decoder.pt_weight", "decoder.pt_bias"}
    assert all(torch.equal(both.state_dict()[name], weights[name]) for name in weights)
    torch.testing.assert_close(both(*inputs)[:, 0], alone(*inputs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = alone(*inputs)
    assert torch.equal(inside, alone(*inputs))


@each_option
def test_scoring_alone_gives_what_training_gives(options: dict[str, Any]) -> None:
    model = make_model(**options).double()
    x, edge_features, edge_index = make_graph()
    inputs = (x, edge_features, edge_index, len(x), no_exchange)
    with torch.no_grad():
        scored = model(*inputs)
    assert torch.equal(scored, model(*inputs))


def kept_bytes(**options: Any) -> int:
    """Bytes of distinct storage that one forward pass keeps for the backward pass."""
    model, store = make_model(hidden=32, layers=8, **options), checks.Recording()
    model.keep_edges_in(store)
    return checks.n_bytes([*checks.kept_tensors(model, *make_graph(20, 2000)), *store.alive])


def test_what_recomputation_and_bf16_keep() -> None:
    edges = 2000 * 32 * 4  # one float32 tensor of all edges
    recomputed = kept_bytes(recompute="layer")
    assert 8 * edges < recomputed < 8.5 * edges  # what each layer reads, features
    assert kept_bytes(recompute="chunk") == recomputed
    # The first product of the encoder and of each layer; the last one has four more.
    assert recomputed + 13 * edges < kept_bytes(recompute="none") < recomputed + 13.5 * edges
    assert kept_bytes(recompute="chunk", precision="bf16") < 0.53 * recomputed


def test_a_backward_pass_takes_one_tensor_of_all_edges_more_and_frees_all() -> None:
    x, edge_features, edge_index = make_graph(20, 2000)
    model, store = make_model(hidden=32, layers=8), checks.Recording()
    model.keep_edges_in(store)
    logits = model(x.float(), edge_features.float(), edge_index, len(x), no_exchange)
    assert len(store.rows) == len(store.alive) == 8
    logits.sum().backward(retain_graph=True)
    assert len(store.rows) == 9
    assert not store.alive
    with pytest.raises(RuntimeError, match="a backward pass can be run once"):
        logits.sum().backward()


@pytest.mark.parametrize("recompute", get_args(Recompute))
def test_bf16_stays_near_float32(recompute: str) -> None:
    options: dict[str, Any] = {"pt_head": True, "hidden": 32, "recompute": recompute}
    half = make_model(**options, precision="bf16")
    checks.bf16_stays_near_float32(make_model(**options), half)


def test_chunks_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares many small chunks, the last of them partly filled, with all edges at once."""
    x, edge_features, edge_index = make_graph(12, 43)
    whole = make_model(recompute="none").double()
    chunked = make_model(recompute="chunk").double()
    monkeypatch.setattr(states, "CPU_BYTES", 8 * 6 * 10)  # ten edges
    inputs = (x, edge_features, edge_index, len(x), no_exchange)
    logits = chunked(*inputs)
    torch.testing.assert_close(logits, whole(*inputs), rtol=1e-12, atol=1e-13)
    wanted = gradients(whole, whole(*inputs))
    checks.same_gradients(chunked, gradients(chunked, logits), wanted)
