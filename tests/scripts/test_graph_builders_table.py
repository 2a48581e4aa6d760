"""Tests that graphs are compared at equal efficiency, by one truth."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles, overlap_edges, particle_kinematics, true_edges
from bigtrk.graphs.builders.builder import TrueEdgeBuilder, WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.pipeline.models import EdgeScorer, Embedding
from bigtrk.training.data.model_features import load_features
from bigtrk.training.settings import DataSettings
from scripts.docs.tables.stage_tables import GRAPHS, graph_builders
from scripts.physics.graph_builders_table import compare
from scripts.physics.graph_ways import (
    Way,
    are_among,
    filtered,
    measured,
    radius_keeping,
    target_edges,
    windows_keeping,
)

WINDOWS = WindowBuilder(builtin_windows())


class RandomScorer(EdgeScorer):
    """Scores edges at random, the same for each graph of as many edges."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Identity(), load_features(DataSettings()), "random")

    def __call__(self, graph: EventGraph) -> torch.Tensor:
        generator = torch.Generator().manual_seed(graph.n_edges)
        return torch.rand(graph.n_edges, generator=generator, dtype=torch.float64)


class Places(Embedding):
    """Leaves hits where they are."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Identity(), load_features(DataSettings()), "places")

    def __call__(self, event: Event) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return np.stack([event.hits[axis] for axis in "xyz"], axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return [simulate_event(200, seed=9, event_id=number) for number in range(3)]


def pairs_of(pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in pairs.T.tolist()}


def test_a_graph_is_judged_as_sets_of_pairs_are(events: list[Event]) -> None:
    event = events[0]
    graph = Way(WINDOWS)(event)
    found, edges = measured(graph, event), pairs_of(graph.edge_index.numpy())
    table = particle_kinematics(event)
    hard = {
        int(particle)
        for particle, pt, nhits in zip(
            table["particle_id"], table["pt"], table["nhits"], strict=True
        )
        if pt > 1 and nhits >= 3
    }
    particle = hit_particles(event).tolist()
    true, overlaps = pairs_of(true_edges(event)), pairs_of(overlap_edges(event))
    target = {pair for pair in true if particle[min(pair)] in hard}
    assert pairs_of(target_edges(event)) == target
    assert found["target_efficiency"] == len(target & edges) / len(target)
    assert found["edge_efficiency"] == len(true & edges) / len(true)
    assert found["purity"] == len((true | overlaps) & edges) / len(edges)
    assert found["overlap_efficiency"] == 0
    assert found["edges"] == len(edges)
    every = measured(build_graph(event, TrueEdgeBuilder()), event)
    assert {every[name] for name in every if name != "edges"} == {1.0}


def test_pairs_are_found_in_either_direction() -> None:
    pairs, others = np.array([[0, 5, 2], [1, 3, 2]]), np.array([[3, 1], [5, 0]])
    assert are_among(pairs, others).tolist() == [True, True, False]
    assert are_among(pairs, others[:, :0]).tolist() == [False] * 3


def test_cuts_and_radii_keep_the_share_that_is_asked_for(events: list[Event]) -> None:
    total = sum(target_edges(event).shape[1] for event in events)

    def kept(way: Way) -> float:
        found = sum(
            int(are_among(target_edges(event), way(event).edge_index.numpy()).sum())
            for event in events
        )
        return float(found / total)

    way = filtered(WINDOWS, RandomScorer(), events, 0.8)
    assert 0.8 <= kept(way) < 0.8 + 1 / total
    assert kept(filtered(WINDOWS, RandomScorer(), events, 1.0)) == kept(Way(WINDOWS)) < 1
    radius = radius_keeping(Places(), events, 0.9)
    lengths = np.concatenate(
        [
            np.linalg.norm(np.subtract(*Places()(event).astype(float)[target_edges(event)]), axis=1)
            for event in events
        ]
    )
    assert 0.9 <= (lengths <= radius).mean() < 0.9 + 1 / total


def test_windows_are_learnt_once(events: list[Event], tmp_path: Path) -> None:
    class Events:
        def training(self) -> list[Event]:
            return events[:2]

    found = windows_keeping(tmp_path, Events(), events[2:], 0.9)  # type: ignore[arg-type]
    assert windows_keeping(tmp_path, None, [], 0.9) == found  # type: ignore[arg-type]
    fewer = WindowBuilder(found).doublets(events[2]).shape[1]
    assert fewer < WINDOWS.doublets(events[2]).shape[1]


def test_ways_are_compared_and_shown(
    events: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {event.name: event for event in events}
    monkeypatch.setattr("scripts.physics.graph_builders_table.find_events", lambda _: [*names])
    monkeypatch.setattr(
        "scripts.physics.graph_builders_table.read_event", lambda _, name: names[name]
    )
    found = compare(dict.fromkeys(GRAPHS, Way(WINDOWS)), tmp_path)
    expected = [measured(Way(WINDOWS)(event), event)["purity"] or 0 for event in events]
    assert found["windows"]["purity"] == pytest.approx(np.mean(expected))
    table = graph_builders({"compared": {"simulated": found}})
    assert {len(cells) for cells in table.rows} == {len(table.columns)}
    assert len(table.rows) == len(GRAPHS)
