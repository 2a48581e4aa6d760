"""The loss of an embedding against a plain sum over pairs, and its neighbours against all pairs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import TrueEdgeBuilder, build_graph
from bigtrk.graphs.event_graph import whole_sector
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import Batch, BatchMaker
from bigtrk.training.embedding import EmbeddedEvent, nearest, pair_loss, radius_of
from bigtrk.training.loss import Draw
from bigtrk.training.settings import Configuration, PairSettings
from tests.distributed.ranks import ALONE

# All hits are queried for all their neighbours, so that nothing is left to chance.
SOFT = {"pt_min": 0.5, "weight": 2.0, "other_weight": 0.5}
ALL = PairSettings(margin=0.8, hard_hits=10_000, neighbours=1000, random_pairs=0)


def a_batch(pairs: PairSettings, **target: Any) -> Batch:
    configuration = Configuration.model_validate(
        {"model": {"name": "embedding"}, "pairs": pairs.model_dump(), "target": target}
    )
    graph = build_graph(simulate_event(20, seed=2), TrueEdgeBuilder())
    return BatchMaker(configuration, make_world(ALONE, [])).alone(0, whole_sector(graph)).batches[0]


def an_embedding(batch: Batch) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(len(batch.x), 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("target", [{}, SOFT, SOFT | {"other_weight": -1.0}])
def test_the_loss_is_the_mean_of_hinges(target: dict[str, float]) -> None:
    batch = a_batch(ALL, **target)
    embedding = an_embedding(batch).requires_grad_()
    n_hits = len(embedding)
    assert n_hits < ALL.neighbours
    found = pair_loss(embedding, batch, batch.truth.counts, ALL, Draw(0, 0))
    particle = batch.sector.particle_id
    assert particle is not None
    false = (particle[:, None] != particle) | (particle == 0)
    squared = (embedding[:, None] - embedding).square().sum(dim=2)[false.fill_diagonal_(False)]
    lacking = (0.8**2 - squared).clamp(min=0).sum()
    ends = embedding[batch.edge_index]
    near = ((ends[0] - ends[1]).square().sum(dim=1) * batch.weights.clamp(min=0)).sum()
    true = int((batch.weights > 0).sum())
    assert batch.truth.counts.tolist() == [true, n_hits * (n_hits - 1)]
    expected = near / true + lacking / (n_hits * (n_hits - 1))
    torch.testing.assert_close(found, expected)
    of_each = (torch.autograd.grad(loss, embedding) for loss in (found, expected))
    torch.testing.assert_close(*of_each)


def test_neighbours_are_the_nearest_within_the_radius() -> None:
    points = torch.rand(200, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    queries = torch.tensor([5, 17, 90])
    distance = torch.cdist(points, points)
    expected = set()
    for query in queries.tolist():
        order = distance[query].argsort()[1:8]
        expected |= {(query, int(i)) for i in order if distance[query, i] < 0.3}
    assert 3 < len(expected) < 21, "some have fewer, some more than asked for"
    assert set(map(tuple, nearest(points, queries, 7, 0.3).T.tolist())) == expected


def test_draws_are_those_of_the_step() -> None:
    few = PairSettings(hard_hits=10, neighbours=3, random_pairs=50)
    batch = a_batch(few)
    embedding = an_embedding(batch)

    def loss(draw: Draw, other: Batch = batch) -> float:
        return float(pair_loss(embedding, other, other.truth.counts, few, draw))

    assert loss(Draw(1, 2)) == loss(Draw(1, 2))
    wedge = replace(batch, sector=replace(batch.sector, part=1, parts=2))
    others = {loss(Draw(1, 3)), loss(Draw(2, 2)), loss(Draw(1, 2), wedge)}
    assert loss(Draw(1, 2)) not in others
    assert len(others) == 3


def test_no_hits_make_no_loss_but_a_gradient() -> None:
    batch = a_batch(ALL)
    empty = replace(batch, edge_index=batch.edge_index[:, :0])
    none = replace(batch.truth, weight=batch.truth.weight[:0], label=batch.truth.label[:0])
    empty = replace(empty, truth=none)
    embedding = torch.zeros(0, 3, requires_grad=True)
    loss = pair_loss(embedding, empty, torch.ones(2), ALL, Draw(0, 0))
    assert loss.item() == 0
    loss.backward()


def test_a_radius_keeps_its_share_of_edges() -> None:
    lengths = np.arange(1.0, 201.0)
    for kept in (0.95, 0.99, 0.995):
        radius = radius_of(lengths, kept)
        assert (lengths <= radius).mean() >= kept
        assert (lengths < 0.9999 * radius).mean() < kept


def test_edges_are_counted_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    hits = np.random.default_rng(0).random((3000, 3))
    event = EmbeddedEvent(0, hits, np.empty(0), np.empty(0), 0.0)
    exact = event.edges_within([0.05, 0.1])
    squared = ((hits[:, None] - hits[None]) ** 2).sum(axis=2)
    assert exact == [((squared <= r**2).sum() - 3000) / 2 for r in (0.05, 0.1)]
    monkeypatch.setattr("bigtrk.training.embedding.SAMPLE", 1000)
    np.testing.assert_allclose(event.edges_within([0.05, 0.1]), exact, rtol=0.1)
