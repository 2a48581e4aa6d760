"""Layers that compute while halo rows travel: with the same bits, and reading none too early."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from bigtrk.models.edges import fused, states
from bigtrk.models.edges.passes import ChunkedMLP
from bigtrk.models.edges.states import Recompute
from bigtrk.models.protocol import SectorInputs
from tests.models.fused import usable_everywhere
from tests.models.graphs import Cut, gradients, make_graph
from tests.models.test_interaction_gnn import make_model

LAYERS = 3


class Rows:
    """Halo rows that are NaN until somebody waits for them."""

    def __init__(self, nodes: list[Tensor], cut: Cut, late: bool, before: list[int]) -> None:
        self._halos = [rows[len(own) :] for rows, own in zip(nodes, cut.owned, strict=True)]
        self._kept = [halo.detach().clone() for halo in self._halos]
        self.is_awaited, self._before, self._computed = late, before, 0
        if late:
            self._fill([torch.full_like(halo, torch.nan) for halo in self._kept])

    def wait(self) -> None:
        if self.is_awaited:
            self._fill(self._kept)
            self._before.append(COMPUTED[0])
        self.is_awaited = False

    def _fill(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for halo, rows in zip(self._halos, values, strict=True):
                halo.copy_(rows)


COMPUTED = [0]  # passes over some edges, since the last exchange began


class Exchange:
    """The exchange between all sectors of a graph. before: what was computed before each wait."""

    def __init__(self, cut: Cut, late: bool) -> None:
        self._cut, self._late = cut, late
        self.before: list[int] = []

    def __call__(self, owned: list[Tensor]) -> list[Tensor]:
        return self._cut.exchange(owned)

    def begin(self, owned: list[Tensor]) -> tuple[list[Tensor], Rows]:
        COMPUTED[0] = 0
        nodes = self._cut.exchange(owned)
        return nodes, Rows(nodes, self._cut, self._late, self.before)


def interior_first(cut: Cut) -> list[SectorInputs]:
    """Returns a cut's sectors in float32 with the edges among owned nodes first."""
    sectors = []
    for x, edge_features, edge_index, n_owned in cut.sectors:
        order = (edge_index >= n_owned).any(dim=0).to(torch.int8).argsort(stable=True)
        ends = edge_index[:, order]
        sectors.append(SectorInputs(x.float(), edge_features[order].float(), ends, n_owned))
    return sectors


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes four edges at a time, and counts how often."""
    monkeypatch.setattr(states, "CPU_BYTES", 100)
    for owner, name in ((ChunkedMLP, "forward"), (fused, "forward")):
        before = getattr(owner, name)

        def count(*arguments: Any, call: Any = before) -> Any:
            COMPUTED[0] += 1
            return call(*arguments)

        monkeypatch.setattr(owner, name, count)


def trained(late: bool, n_edges: int = 200, **options: Any) -> tuple[dict[str, Tensor], list[int]]:
    """Returns logits and gradients, and what was computed before each wait."""
    cut = Cut(make_graph(30, n_edges), 2)
    exchange, model = Exchange(cut, late), make_model(layers=LAYERS, **options)
    made = torch.cat(model(interior_first(cut), exchange))
    return {"logits": made.detach(), **gradients(model, made)}, exchange.before


def assert_same_bits(early: dict[str, Tensor], late: dict[str, Tensor]) -> None:
    assert early.keys() == late.keys()
    for name, values in early.items():
        assert values.isfinite().all(), name
        assert torch.equal(values, late[name]), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", get_args(Recompute))
@pytest.mark.parametrize("options", [{}, {"concatenate": False, "in_out": False}], ids=str)
def test_layers_wait_no_sooner_than_they_must(
    options: dict[str, Any], recompute: str, precision: str
) -> None:
    options = {**options, "recompute": recompute, "precision": precision}
    (there, none), (late, before) = (trained(one, **options) for one in (False, True))
    assert none == []
    assert_same_bits(there, late)
    assert len(before) == LAYERS - 1
    # A layer that is computed at once has no edges that could come first.
    assert all(computed > 1 for computed in before) or recompute == "layer"


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted without a GPU")
@pytest.mark.usefixtures("interpreted_bf16")
def test_a_gpu_starts_the_edges_that_read_no_halo_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(fused, "usable", usable_everywhere)
    monkeypatch.setattr(states, "CPU_BYTES", 2**19)  # the other passes take all edges at once
    options = {"hidden": 16, "precision": "bf16"}
    (there, _), (late, before) = (trained(one, 400, **options) for one in (False, True))
    assert_same_bits(there, late)
    assert before == [1] * (LAYERS - 1)


def test_a_sector_without_cut_edges_waits_at_the_end() -> None:
    """Its halo rows are read by nobody, but those of the rank's other sectors come with them."""
    cut = Cut(make_graph(30, 200), 1)
    exchange, model = Exchange(cut, late=True), make_model(layers=LAYERS)
    logits = torch.cat(model(interior_first(cut), exchange))
    assert logits.isfinite().all()
    assert len(exchange.before) == LAYERS - 1
