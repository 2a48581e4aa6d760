"""ShaDow mini-batches of an event: every node once a root, features and labels looked up."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, Sector, empty_sector, whole_sector
from bigtrk.sampling import engines
from bigtrk.sampling import shadow as module
from bigtrk.sampling.engines import Products
from bigtrk.sampling.shadow import ShaDow, shadow_sector
from bigtrk.sampling.subgraphs import Subgraphs, Walk

CPU = torch.device("cpu")
N, E = 50, 300
RootsOf = Callable[..., list[list[int]]]
SMALL = ShaDow(Walk(depth=2, fanout=3), batch_size=8, bulk=3)


@pytest.fixture(scope="module")
def graph() -> EventGraph:
    generator = torch.Generator().manual_seed(0)
    return EventGraph(
        name="event1",
        node_feature_names=("r",),
        edge_feature_names=("dr", "dz"),
        node_features=torch.randn(N, 1, generator=generator),
        edge_index=torch.randint(N, (2, E), generator=generator),
        edge_features=torch.randn(E, 2, generator=generator),
        y=torch.rand(E, generator=generator) < 0.5,
        hit_id=torch.arange(N) + 2**60,
    )


@pytest.fixture(scope="module")
def whole(graph: EventGraph) -> Sector:
    return whole_sector(graph)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[Subgraphs]:
    """The subgraphs of all mini-batches, as they are sampled."""
    found: list[Subgraphs] = []

    def noted(whole: Sector, subgraphs: Subgraphs) -> Sector:
        found.append(subgraphs)
        return shadow_sector(whole, subgraphs)

    monkeypatch.setattr(module, "shadow_sector", noted)
    return found


@pytest.fixture
def roots_of(sampled: list[Subgraphs]) -> RootsOf:
    def found(shadow: ShaDow, whole: Sector, rank: int = 0, ranks: int = 1) -> list[list[int]]:
        sampled.clear()
        list(shadow.batches(whole, CPU, seed=3, epoch=5, rank=rank, ranks=ranks))
        return [subgraphs.roots.tolist() for subgraphs in sampled]

    return found


@pytest.mark.parametrize("batch_size", [1, 7, 25, N, N + 1, 10 * N])
@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_every_node_is_a_root_once(
    whole: Sector, roots_of: RootsOf, batch_size: int, k: int
) -> None:
    found = roots_of(replace(SMALL, batch_size=batch_size, bulk=k), whole)
    assert sorted(root for roots in found for root in roots) == list(range(N))
    assert {len(roots) for roots in found[:-1]} <= {batch_size}


@pytest.mark.parametrize("ranks", [1, 2, 3, 16])
def test_ranks_share_each_mini_batch(whole: Sector, roots_of: RootsOf, ranks: int) -> None:
    alone = roots_of(SMALL, whole)
    shares = [roots_of(SMALL, whole, rank, ranks) for rank in range(ranks)]
    for i, roots in enumerate(alone):
        together = [root for share in shares for root in share[i]]
        assert sorted(together) == sorted(roots)
    assert {len(share) for share in shares} == {len(alone)}


def test_a_batch_is_a_sector_of_the_event(
    graph: EventGraph, whole: Sector, sampled: list[Subgraphs]
) -> None:
    assert graph.y is not None
    assert graph.hit_id is not None
    for i, sector in enumerate(SMALL.batches(whole, CPU, seed=0, epoch=0)):
        node, edge = sector.node_id, sector.edge_id
        assert torch.equal(node[sector.edge_index], graph.edge_index[:, edge])
        looked_up: list[tuple[Tensor | None, Tensor]] = [
            (sector.node_features, graph.node_features[node]),
            (sector.hit_id, graph.hit_id[node]),
            (sector.edge_features, graph.edge_features[edge]),
            (sector.y, graph.y[edge]),
        ]
        for found, expected in looked_up:
            assert found is not None
            assert torch.equal(found, expected)
        assert sector.particle_id is None
        assert torch.isin(sampled[i].roots, node).all()
        assert sector.owns_edge.all()
        assert (sector.part, sector.parts, sector.n_owned) == (0, 1, sector.n_nodes)
        assert (sector.event, sector.event_nodes, sector.event_edges) == ("event1", N, E)


def test_epochs_repeat_whatever_the_bulk_and_the_engine(
    whole: Sector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edges(shadow: ShaDow) -> list[Tensor]:
        return [sector.edge_id for sector in shadow.batches(whole, CPU, seed=1, epoch=2)]

    expected = edges(SMALL)
    others = [edges(SMALL), edges(replace(SMALL, bulk=1))]
    monkeypatch.setattr(engines, "library", lambda: None)
    assert engines.fastest(CPU) == Products(CPU)
    others.append(edges(SMALL))
    for found in others:
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_an_event_without_nodes_has_no_mini_batches() -> None:
    nothing = empty_sector(("r",), ("dr", "dz"))
    assert list(SMALL.batches(nothing, CPU, seed=0, epoch=0)) == []


def test_the_next_bulk_is_sampled_while_one_is_used(
    whole: Sector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second bulk is asked for before the first one's first batch is handed out."""
    started = threading.Semaphore(0)
    plain = ShaDow._sample

    def noted(*arguments: object) -> object:
        started.release()
        return plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ShaDow, "_sample", noted)
    batches = SMALL.batches(whole, CPU, seed=0, epoch=0)
    next(batches)
    assert started.acquire(timeout=300)
    assert started.acquire(timeout=300), "the second bulk waits for the first to be used up"
    del batches
