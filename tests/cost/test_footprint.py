"""Counts of what a model keeps and computes equal what torch saves, and closed formulas."""

import pytest
import torch
from torch import Tensor

from bigtrk.cost.event_size import SectorSize
from bigtrk.cost.footprint import Footprint, activations, footprint
from bigtrk.models.edges.states import Recompute
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.options import Precision
from bigtrk.models.protocol import no_exchange
from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    InteractionGNNConfig,
    ModelConfig,
    make_model,
)
from tests.models import checks

NODES, EDGES = 300, 2000


def make_inputs(n_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(NODES, 4), torch.randn(n_edges, 6), torch.randint(NODES, (2, n_edges))


def really_saved(config: ModelConfig, n_edges: int) -> int:
    """Bytes of distinct tensors that are kept for the backward pass: those that autograd keeps,
    weights and inputs left out, and the edges between layers.
    """
    model, inputs, store = make_model(config, 4, 6), make_inputs(n_edges), checks.Recording()
    if isinstance(model, InteractionGNN):
        model.keep_edges_in(store)
    known = {t.untyped_storage().data_ptr() for t in (*inputs, *model.parameters())}
    kept = checks.kept_tensors(model, *inputs)
    made = [tensor for tensor in kept if tensor.untyped_storage().data_ptr() not in known]
    return checks.n_bytes([*made, *store.alive])


@pytest.mark.parametrize("recompute", ["none", "layer", "chunk"])
@pytest.mark.parametrize("hidden", [16, 48])
def test_saved_activations_are_what_autograd_keeps(hidden: int, recompute: Recompute) -> None:
    config = InteractionGNNConfig(hidden=hidden, layers=3, recompute=recompute)
    count = footprint(config, 4, 6, cut=False)
    more = really_saved(config, 2 * EDGES) - really_saved(config, EDGES)
    # Beside what the model keeps of an edge: its logit, for the loss.
    assert float(count.saved[0]) == pytest.approx(more / EDGES + 4, rel=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("concatenate", [True, False])
def test_edges_off_the_device_are_counted_where_they_are(
    concatenate: bool, precision: Precision
) -> None:
    """Bytes kept there, bytes that travel, and what is left on the device."""
    config = InteractionGNNConfig(
        hidden=48, layers=3, recompute="offload", concatenate=concatenate, precision=precision
    )
    found = []
    for n_edges in (EDGES, 2 * EDGES):
        model, store = InteractionGNN(config, 4, 6), checks.Recording()
        model.keep_edges_in(store)
        logits = model(*make_inputs(n_edges), NODES, no_exchange)
        logits.sum().backward()
        made = 4 * n_edges * 48 * (4 if precision == "fp32" else 2)  # three states, one gradient
        found.append((made, store.passed))
        assert len(store.rows) == 4
    kept, passed = ((more - less) / EDGES for less, more in zip(*found, strict=True))
    away = footprint(config, 4, 6, cut=False, away_in=2**19)
    assert float(away.away[0]) == pytest.approx(kept, rel=1e-9)
    assert float(away.moved[0]) == pytest.approx(passed, rel=1e-9)
    # What stays of an edge: its logit.
    assert float(away.saved[0]) == pytest.approx(4, rel=1e-9)
    here = footprint(config, 4, 6, cut=False)
    assert float(here.saved[0]) == pytest.approx(kept * 3 / 4 + 4, rel=1e-9)
    assert not here.away.any()
    assert not here.moved.any()


# What autograd's hooks do not see of an edge: its logit, which the MLP keeps for itself, and its
# order and column in two sparse matrices.
LOGIT, MATRICES = 4, 2 * 2 * 8


@pytest.mark.parametrize(
    ("config", "unseen"),
    [
        (EdgeMLPConfig(recompute="none"), 0),
        (EdgeMLPConfig(recompute="chunk"), 0),
        (AttentionGNNConfig(layers=3, recompute="none"), LOGIT + MATRICES),
        (AttentionGNNConfig(layers=3, recompute="layer"), LOGIT + MATRICES),
        (AttentionGNNConfig(layers=3, recompute="layer", precision="bf16"), LOGIT + MATRICES),
    ],
    ids=str,
)
def test_saved_activations_of_the_other_models(config: ModelConfig, unseen: int) -> None:
    count = footprint(config, 4, 6, cut=False)
    more = really_saved(config, 2 * EDGES) - really_saved(config, EDGES)
    assert float(count.saved[0]) == pytest.approx(more / EDGES + unseen, rel=1e-9)


def test_matrix_products_are_those_of_the_formula() -> None:
    """Encoders, edge and node networks, decoder, counted by hand: 6 passes of 2 per weight-row."""
    H, L = 32, 3
    config = InteractionGNNConfig(hidden=H, layers=L, recompute="none")
    count = footprint(config, 4, 6, cut=False)
    edge = 6 * H + H * H + L * (2 * H * H + H * H) + H * H * 3 + H
    node = 4 * H + H * H + L * (2 * 2 * H * H) + (L - 1) * (4 * H * H + H * H)
    forward = 2 * (edge * EDGES + node * NODES)
    # Backward does it twice more, except for the gradients of the input features; of the nodes it
    # computes again what they add to edges, and their last product.
    inputs = 2 * (6 * H * EDGES + 4 * H * NODES)
    again = 2 * NODES * (L * 2 * 2 * H * H + (L - 1) * H * H)
    expected = 3 * forward - inputs + again
    assert float(count.flops @ [EDGES, NODES, NODES, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("hidden", [32, 64])
def test_a_gpu_s_launches_and_scratch_are_counted(hidden: int) -> None:
    """The bytes are the edges between layers and the parts of the weights' gradients."""
    config = InteractionGNNConfig.model_validate(
        {"hidden": hidden, "layers": 4, "recompute": "layer", "precision": "bf16"}
    )
    shallow = config.model_copy(update={"layers": 3})
    deep, less = (footprint(one, 4, 6, cut=False, on_gpu=True) for one in (config, shallow))
    # Forward: the pass and its sums; backward: those, and the sums over programs.
    more = (deep.operations - less.operations)[3]
    assert not deep.operations[:3].round(6).any(), "as many whatever the size"
    of_cpu = footprint(config, 4, 6, cut=False)
    assert more < (of_cpu.operations - footprint(shallow, 4, 6, cut=False).operations)[3]
    parts = 2**16 // hidden * (3 * hidden + 1) * hidden * 4
    scratch = deep.live[:, 3].max() - of_cpu.live[:, 3].max()
    assert scratch == pytest.approx(parts, rel=0.05)


@pytest.mark.parametrize("recompute", ["chunk", "layer"])
@pytest.mark.parametrize("edges", [1_000, 40_000])
def test_few_rows_on_a_gpu_take_no_whole_chunk(recompute: str, edges: int) -> None:
    """They are counted as they are; with as many as a chunk has both counts are near each other."""
    options = {"hidden": 64, "layers": 3, "recompute": recompute}
    config = InteractionGNNConfig.model_validate(options)

    def counted(edges: int, of_few: bool) -> float:
        def count(sectors: int, rows: int | None) -> Footprint:
            return footprint(
                config, 4, 6, False, None, sectors, on_gpu=True, most_rows=rows if of_few else None
            )

        return activations(count, SectorSize(edges, edges // 10), 1)[1]

    rows = footprint(config, 4, 6, cut=False, on_gpu=True).busy_rows
    assert rows is not None
    per_edge = counted(edges, of_few=True) / edges
    assert 500 < per_edge < 6_000  # bytes: 4 edges of 64, and what a layer takes
    assert counted(rows + 1, of_few=True) == counted(rows + 1, of_few=False)
    assert counted(rows - 1, of_few=True) == pytest.approx(counted(rows, of_few=False), rel=0.25)
    assert footprint(config, 4, 6, cut=False).busy_rows is None
