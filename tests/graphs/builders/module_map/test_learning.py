"""Learnt module maps against plain Python's statistics of the same triplets."""

from collections import defaultdict
from dataclasses import replace
from statistics import fmean, pstdev

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import hit_particles, module_ids, overlap_edges, true_edges
from bigtrk.graphs.builders.builder import build_with_record
from bigtrk.graphs.builders.map_windows import MapWindows
from bigtrk.graphs.builders.module_map import ModuleMap, changes, doublet_features, hit_places
from bigtrk.graphs.builders.module_map_builder import ModuleMapBuilder, learn_module_map
from bigtrk.graphs.builders.window_learning import is_target

Modules = tuple[tuple[int, ...], ...]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Three events in a detector of large modules, which are passed often."""
    return [large_modules(simulate_event(150, seed=7, event_id=i)) for i in range(3)]


def large_modules(event: Event) -> Event:
    module_id = event.hits["module_id"].astype(np.int64) // 100
    return replace(event, hits=event.hits | {"module_id": module_id})


@pytest.fixture(scope="module")
def learnt(events: list[Event]) -> ModuleMap:
    return learn_module_map(events, "for a test")


def hit_triplets(event: Event) -> list[tuple[int, int, int]]:
    """The triplets of consecutive hits of target particles, ordered outwards."""
    squared = (np.stack([event.hits[axis] for axis in "xyz"]).astype(float) ** 2).sum(axis=0)
    target, after = is_target(event, 1.0, 3), defaultdict(list)
    for edges in (true_edges(event), overlap_edges(event)):
        for a, b in edges.T.tolist():
            if target[a]:
                inner, outer = sorted((a, b), key=lambda hit: (squared[hit], hit))
                after[inner].append(outer)
    return [(a, b, c) for a, ends in after.items() for b in ends for c in after.get(b, [])]


def seen(events: list[Event]) -> dict[Modules, list[list[float]]]:
    """The features of all triplets of hits, by modules."""
    found = defaultdict(list)
    for event in events:
        modules, places = module_ids(event.hits), hit_places(event.hits)
        for hits in hit_triplets(event):
            rows = np.array(hits)[:, None]
            values = np.concatenate(
                [
                    doublet_features(places, rows[:2]),
                    doublet_features(places, rows[1:]),
                    changes(places, rows),
                ]
            )
            found[tuple(tuple(modules[hit].tolist()) for hit in hits)].append(values[:, 0].tolist())
    return found


def spread(values: list[float]) -> float:
    """Half of what lies between the quantiles of a standard deviation on either side."""
    ordered = sorted(values)
    low, high = (round(share * (len(values) - 1)) for share in (0.1587, 0.8413))
    return (ordered[high] - ordered[low]) / 2


def test_triplets_and_windows_are_those_seen(events: list[Event], learnt: ModuleMap) -> None:
    expected = seen(events)
    names: list[Modules] = [
        tuple(tuple(learnt.modules[row].tolist()) for row in triplet) for triplet in learnt.triplets
    ]
    assert sorted(names) == sorted(expected)
    of_layers: dict[Modules, list[list[float]]] = defaultdict(list)
    for modules, values in expected.items():
        of_layers[tuple(module[:2] for module in modules)] += values
    often = sorted(range(len(names)), key=lambda i: -learnt.counts[i])[:20]
    assert learnt.counts[often[0]] > 3
    for i in (*often, *range(20)):
        values = expected[names[i]]
        assert learnt.counts[i] == len(values)
        for feature in range(10):
            column = [row[feature] for row in values]
            on_layers = [row[feature] for row in of_layers[tuple(m[:2] for m in names[i])]]
            margin = 3 * spread(on_layers) / len(column)
            reach = 3 * (pstdev(column) ** 2 + 2 * spread(on_layers) ** 2 / len(column)) ** 0.5
            ends = {
                MapWindows.MINMAX: (min(column) - margin, max(column) + margin),
                MapWindows.SIGMA: (fmean(column) - reach, fmean(column) + reach),
            }
            for kind, (lower, upper) in ends.items():
                assert learnt.bounds[kind].lower[feature, i] == pytest.approx(lower, abs=1e-9)
                assert learnt.bounds[kind].upper[feature, i] == pytest.approx(upper, abs=1e-9)


def test_the_graph_holds_all_that_was_learnt(events: list[Event], learnt: ModuleMap) -> None:
    builder = ModuleMapBuilder(learnt, MapWindows.MINMAX)
    for event in events:
        graph, record = build_with_record(event, builder)
        edges = set(map(tuple, graph.edge_index.T.tolist()))
        of_triplets = {pair for a, b, c in hit_triplets(event) for pair in ((a, b), (b, c))}
        assert of_triplets
        assert of_triplets <= edges
        assert record["target_efficiency"] > 0.95, "the others are of two hits in a row"
        assert record["module_map_windows"] == "minmax"
        assert graph.y is not None
        particle = hit_particles(event)
        source, destination = graph.edge_index[:, graph.y].numpy()
        assert (particle[source] == particle[destination]).all()


def test_nothing_to_learn_from_is_told(events: list[Event]) -> None:
    with pytest.raises(InputError, match="no particle above 1000 GeV has three hits"):
        learn_module_map(events, "", pt_min=1000)
    with pytest.raises(InputError, match="has hits but no truth"):
        learn_module_map([replace(events[0], truth=None)], "")
