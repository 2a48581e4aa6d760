"""Module maps: searched, learnt, kept in files and used by `bigtrk build`."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import module_ids, overlap_edges, true_edges
from bigtrk.graphs.builders import windows as doublets
from bigtrk.graphs.builders.builder import build_graph, build_with_record
from bigtrk.graphs.builders.module_map import (
    FEATURES,
    ModuleMap,
    changes,
    doublet_features,
    hit_places,
    read_module_map,
    write_module_map,
)
from bigtrk.graphs.builders.module_map_builder import ModuleMapBuilder, learn_module_map
from bigtrk.graphs.builders.window_learning import is_target
from bigtrk.graphs.event_graph import Section
from bigtrk.graphs.features import Floats
from bigtrk.graphs.storage.event_folder import GraphFolder, SectionFile, write_sections
from tests.programs import Run, output_of, refusal_of
from tests.test_bad_input import one_line

# Volume, layer, module: two layers of two modules each and one of one; none of them is in a row of
# what comes first by number.
MODULES = np.array([(8, 4, 7), (8, 2, 1), (8, 2, 3), (9, 2, 3), (8, 4, 2)])
UNKNOWN = (8, 2, 99)
WIDE = (400.0, 0.02, 1.5, 0.8)  # z0 (mm), phi_slope (rad/mm), deta, dphi (rad)
Pairs = set[tuple[int, int]]


def some_map(seed: int, n_triplets: int = 12) -> ModuleMap:
    """A map of random triplets, some within a layer and some inwards, and of random windows."""
    rng = np.random.default_rng(seed)
    triplets = np.unique(rng.integers(len(MODULES), size=(n_triplets, 3)), axis=0)
    width = np.array([*WIDE, *WIDE, 2.0, 1.5])[:, None]
    middle = rng.uniform(-0.5, 0.5, (len(FEATURES), len(triplets))) * width
    reach = rng.uniform(0.2, 2.0, middle.shape) * width
    bounds = np.stack([middle - reach, middle + reach])
    return ModuleMap("by hand", MODULES, triplets, np.ones(len(triplets), np.int64), bounds)


def unbounded(n_triplets: int) -> Floats:
    return np.array([-1e9, 1e9])[:, None, None] * np.ones((2, 10, n_triplets))


def some_hits(n: int, seed: int) -> Columns:
    """Hits on known and unknown modules, half of them close to the wrap of phi."""
    rng = np.random.default_rng(seed)
    places = np.array([*MODULES, UNKNOWN])
    volume_id, layer_id, module_id = places[rng.integers(len(places), size=n)].T
    r = 40.0 * (volume_id - 7) + 10.0 * layer_id + rng.uniform(-30, 30, n)
    phi = np.where(rng.random(n) < 0.5, np.pi, 0.0) + rng.uniform(-0.4, 0.4, n)
    return {
        "hit_id": np.arange(1, n + 1),
        "x": r * np.cos(phi),
        "y": r * np.sin(phi),
        "z": rng.uniform(-100, 100, n),
        "volume_id": volume_id,
        "layer_id": layer_id,
        "module_id": module_id,
    }


def angle(ax: float, ay: float, bx: float, by: float) -> float:
    """The angle from one vector to another, which knows no wrap."""
    return math.atan2(ax * by - ay * bx, ax * bx + ay * by)


def plainly(hits: Columns, module_map: ModuleMap) -> Pairs:
    """Finds the doublets of passing triplets of hits, one by one, in scalar arithmetic."""
    names = ("x", "y", "z", "volume_id", "layer_id", "module_id")
    x, y, z, *modules = (hits[name].tolist() for name in names)
    r = [math.hypot(*place) for place in zip(x, y, strict=True)]
    eta = [math.asinh(one / other) for one, other in zip(z, r, strict=True)]
    order = sorted(range(len(x)), key=lambda i: (x[i] ** 2 + y[i] ** 2 + z[i] ** 2, i))
    on: dict[tuple[int, ...], list[int]] = {}
    for i, module in enumerate(zip(*modules, strict=True)):
        on.setdefault(module, []).append(i)

    def doublet(a: int, b: int) -> list[float]:
        dr, dphi = r[b] - r[a], angle(x[a], y[a], x[b], y[b])
        return [z[a] - r[a] * (z[b] - z[a]) / dr, dphi / dr, eta[b] - eta[a], dphi]

    found, bounds = set(), module_map.bounds
    for i, triplet in enumerate(module_map.triplets):
        candidates = [on.get(tuple(module_map.modules[row].tolist()), []) for row in triplet]
        for a, b, c in product(*candidates):
            if not order.index(a) < order.index(b) < order.index(c):
                continue
            slopes = [(z[k] - z[j]) / (r[k] - r[j]) for j, k in ((a, b), (b, c))]
            bend = angle(x[b] - x[a], y[b] - y[a], x[c] - x[b], y[c] - y[b])
            features = [*doublet(a, b), *doublet(b, c), slopes[1] - slopes[0], bend]
            ends = zip(bounds[0, :, i], features, bounds[1, :, i], strict=True)
            if all(low <= feature <= high for low, feature, high in ends):
                found |= {(a, b), (b, c)}
    return found


def found_by(module_map: ModuleMap, hits: Columns) -> Pairs:
    edges = ModuleMapBuilder(module_map).doublets(Event("event000000001", hits))
    assert edges.dtype == np.int64
    assert len(edges) == 2
    pairs = set(map(tuple, edges.T.tolist()))
    assert len(pairs) == edges.shape[1], "no doublet twice"
    return pairs


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 45), st.integers(0, 10**6))
def test_equals_a_plain_search(n: int, seed: int) -> None:
    hits, module_map = some_hits(n, seed), some_map(seed)
    assert found_by(module_map, hits) == plainly(hits, module_map)


def test_some_pairs_are_found_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hits, module_map = some_hits(45, 3), some_map(3)
    every = replace(module_map, bounds=unbounded(len(module_map.triplets)))
    whole = found_by(module_map, hits)
    assert 10 < len(whole) < 0.7 * len(plainly(hits, every))
    for chunk in (1, 7):
        monkeypatch.setattr(doublets, "CHUNK", chunk)
        assert found_by(module_map, hits) == whole


def test_modules_never_seen_give_no_edges_and_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    event = simulate_event(30, seed=5)
    graph = build_graph(event, ModuleMapBuilder(some_map(3)))
    assert (graph.n_nodes, graph.n_edges) == (len(event.hits["hit_id"]), 0)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{event.name}: {graph.n_nodes:,} of {graph.n_nodes:,} hits are on")


Modules = tuple[tuple[int, ...], ...]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Three events in a detector of large modules, which are passed often."""
    made = [simulate_event(150, seed=7, event_id=i) for i in range(3)]
    large = [event.hits["module_id"].astype(np.int64) // 100 for event in made]
    return [
        replace(event, hits=event.hits | {"module_id": module_id})
        for event, module_id in zip(made, large, strict=True)
    ]


@pytest.fixture(scope="module")
def learnt(events: list[Event]) -> ModuleMap:
    return learn_module_map(events, "for a test")


def hit_triplets(event: Event) -> list[tuple[int, int, int]]:
    """The triplets of consecutive hits of target particles, ordered outwards."""
    squared = (np.stack([event.hits[axis] for axis in "xyz"]).astype(float) ** 2).sum(axis=0)
    target, after = is_target(event, 1.0), defaultdict(list)
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
            ends = [doublet_features(places, rows[:2]), doublet_features(places, rows[1:])]
            values = np.concatenate([*ends, changes(places, rows)])
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
            lower, upper = min(column) - margin, max(column) + margin
            assert learnt.bounds[0, feature, i] == pytest.approx(lower, abs=1e-9)
            assert learnt.bounds[1, feature, i] == pytest.approx(upper, abs=1e-9)


def test_the_graph_holds_all_that_was_learnt(events: list[Event], learnt: ModuleMap) -> None:
    for event in events:
        graph, record = build_with_record(event, ModuleMapBuilder(learnt))
        of_triplets = {pair for a, b, c in hit_triplets(event) for pair in ((a, b), (b, c))}
        assert of_triplets
        assert of_triplets <= set(map(tuple, graph.edge_index.T.tolist()))
        assert record["target_efficiency"] > 0.95, "the others are of two hits in a row"


def test_what_is_written_is_read(tmp_path: Path, learnt: ModuleMap, events: list[Event]) -> None:
    with pytest.raises(InputError, match="has hits but no truth"):
        learn_module_map([replace(events[0], truth=None)], "")
    write_module_map(tmp_path / "map", learnt)
    read = read_module_map(tmp_path / "map")
    assert (read.made, read.digest()) == (learnt.made, learnt.digest())
    assert np.array_equal(read.triplets, learnt.triplets)
    assert np.array_equal(read.bounds, learnt.bounds)


def repeat(sections: dict[str, Section]) -> None:
    sections["map"]["triplets"][1] = sections["map"]["triplets"][0]


def shorten(sections: dict[str, Section]) -> None:
    sections["minmax"]["lower"] = sections["minmax"]["lower"][:, :-1]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"format": "bigtrk merge tree"}, "is not a module map"),
        ({"version": 2}, "was learnt by another version of bigtrk or from"),
        ({"features": ["z0"]}, " or from other features; learn the map again"),
        (lambda of: of["map"]["triplets"].fill_(10**6), "triplets has values"),
        (repeat, "holds a triplet twice; learn the map again"),
        (lambda of: of["map"].pop("modules"), "has no modules; learn the map again"),
        (lambda of: of["minmax"]["upper"].fill_(torch.nan), "has windows that are not finite"),
        (shorten, "minmax: 'lower' has shape"),
    ],
)
def test_another_file_is_refused(
    tmp_path: Path,
    learnt: ModuleMap,
    changed: dict[str, Any] | Callable[[dict[str, Section]], object],
    told: str,
) -> None:
    path = tmp_path / "map"
    write_module_map(path, learnt)
    opened = SectionFile(path)
    sections = {name: opened.read(name) for name in opened.digests}
    others = changed if isinstance(changed, dict) else {}
    if callable(changed):
        changed(sections)
    write_sections(path, sections, {**opened.record, **others})
    with pytest.raises(InputError, match=told) as caught:
        read_module_map(path)
    assert "\n" not in str(caught.value)


BUILD = ["bigtrk", "build", "events"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    simulate_folder(folder / "events", range(2), 80, seed=1, detectors=None)
    return folder


def test_a_learnt_map_builds_the_same_again(
    made: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    monkeypatch.chdir(made)
    out = output_of(run_program([*BUILD, "learnt", "--learn-module-map"]))
    assert "judge it on other events, built with --module-map" in out
    given = ["--module-map", "learnt/module_map.safetensors"]
    assert run_program([*BUILD, "again", *given])[0] == 0
    learnt, again = (GraphFolder(made / name) for name in ("learnt", "again"))
    assert learnt.manifest["parameters"] == again.manifest["parameters"]
    for name in learnt.events:
        assert learnt.record(name)["digests"] == again.record(name)["digests"]
        assert learnt.record(name)["edges"] > 0
    digest = read_module_map(made / "again" / "module_map.safetensors").digest()
    assert digest == learnt.manifest["parameters"]["module_map"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--module-map", "nothing"], "nothing: no such file"),
        (["--learn-windows", "--learn-module-map"], "more than one way to make graphs"),
        (["--learn-module-map", "--pt-min", "1000"], "particle with pT above 1000 GeV has three"),
    ],
)
def test_bad_input_is_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run, options: list[str], told: str
) -> None:
    monkeypatch.chdir(made)
    assert told in " ".join(one_line(refusal_of(run_program([*BUILD, "out", *options]))).split())
    assert not (made / "out").exists()
