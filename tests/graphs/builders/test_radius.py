"""The radius graph against all pairs of hits, one by one."""

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.builders import radius
from bigtrk.graphs.builders.builder import TrueEdgeBuilder, build_graph, build_with_record
from bigtrk.graphs.builders.radius import RadiusBuilder, count_pairs, largest_radius, pairs_within


@pytest.fixture(scope="module")
def event() -> Event:
    return simulate_event(30, seed=5)


def places(event: Event) -> Any:
    """Puts hits where they are, in units of 100 mm."""
    return np.stack([event.hits[axis] for axis in "xyz"], axis=1).astype(np.float32) / 100


def a_builder(**changes: Any) -> RadiusBuilder:
    return RadiusBuilder(**{"embed": places, "embedding": "none", "radius": 0.7, **changes})


@pytest.mark.parametrize("reach", [0.7, 100.0])  # some pairs; all, for which C needs more room
@pytest.mark.parametrize("by", ["C", "scipy"])
def test_pairs_are_those_within_the_radius(
    event: Event, by: str, reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = radius.library() if by == "C" else None  # without a compiler, scipy twice
    monkeypatch.setattr(radius, "library", lambda: found)
    hits, points = event.hits, places(event).astype(np.float64)
    modules = np.stack([hits[f"{part}_id"] for part in ("volume", "layer", "module")], axis=1)
    squared = (np.stack([hits[axis] for axis in "xyz"]).astype(np.float64) ** 2).sum(axis=0)
    expected = set()
    for a, b in combinations(range(len(points)), 2):
        if (modules[a] != modules[b]).any() and np.linalg.norm(points[a] - points[b]) <= reach:
            expected.add((b, a) if squared[b] < squared[a] else (a, b))
    assert any(hits["layer_id"][a] == hits["layer_id"][b] for a, b in expected), "within a layer"
    assert set(map(tuple, a_builder(radius=reach).doublets(event).T.tolist())) == expected


def test_a_smaller_radius_has_hardly_more_pairs() -> None:
    """There is none where many hits lie in one place."""
    points = np.random.default_rng(4).normal(0, 2, (9000, 3)).astype(np.float32)
    tree = cKDTree(points)
    assert count_pairs(tree, 0.5) > 50_000
    for most in (5000, 30_000):
        assert 0.9 * most <= count_pairs(tree, largest_radius(tree, 0.5, most)) <= 1.1 * most
    points[:4000] = 1
    tree = cKDTree(points)
    assert pairs_within(tree, largest_radius(tree, 0.5, 100_000), {}).shape == (2, 0)


def test_true_edges_are_those_of_particles(event: Event) -> None:
    graph, record = build_with_record(event, a_builder(radius=2.0))
    assert graph.y is not None
    inner, outer = hit_particles(event)[graph.edge_index[:, graph.y].numpy()]
    assert (inner == outer).all()
    assert 0.5 < record["edge_efficiency"] <= 1
    assert record["radius"] == 2.0


def test_true_edge_graphs_hold_nothing_else(event: Event) -> None:
    graph, record = build_with_record(event, TrueEdgeBuilder())
    assert graph.y is not None
    assert graph.y.all()
    assert (record["purity"], record["edge_efficiency"]) == (1, 1)
    assert graph.modules is not None
    volume, layer, module = graph.modules.T
    source, destination = graph.edge_index
    within = (volume[source] == volume[destination]) & (layer[source] == layer[destination])
    assert within.any()
    assert (module[source] != module[destination])[within].all()


def test_too_many_pairs_are_refused_with_their_number(event: Event) -> None:
    n_hits = len(event.hits["hit_id"])
    told = f"{event.name}: {n_hits * (n_hits - 1) // 2:,} pairs of hits are closer than 10000"
    with pytest.raises(InputError, match=f"{re.escape(told)}.*; lower --radius or --efficiency"):
        build_graph(event, a_builder(radius=1e4, most=10))
    point = {**event.hits, **{axis: np.full(n_hits, 7.0) for axis in "xyz"}}
    with pytest.raises(InputError, match="many hits lie at one point: correct their x, y and z"):
        build_graph(replace(event, hits=point, truth=None), a_builder(radius=0.1, most=10))
