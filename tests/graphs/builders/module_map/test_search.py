"""Graphs of a module map against a loop over its triplets and all hits on their modules."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigtrk.events.event import Columns, Event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders import windows as doublets
from bigtrk.graphs.builders.builder import build_graph
from bigtrk.graphs.builders.map_windows import MapWindows
from bigtrk.graphs.builders.module_map import FEATURES, Bounds, ModuleMap
from bigtrk.graphs.builders.module_map_builder import ModuleMapBuilder

# Volume, layer, module: two layers of two modules each and one of one; none of them is in a row of
# what comes first by number.
MODULES = np.array([(8, 4, 7), (8, 2, 1), (8, 2, 3), (9, 2, 3), (8, 4, 2)])
UNKNOWN = (8, 2, 99)
MINMAX = MapWindows.MINMAX
WIDE = (400.0, 0.02, 1.5, 0.8)  # z0 (mm), phi_slope (rad/mm), deta, dphi (rad)
Pairs = set[tuple[int, int]]


def some_map(seed: int, n_triplets: int = 12) -> ModuleMap:
    """A map of random triplets, some within a layer and some inwards, and of random windows."""
    rng = np.random.default_rng(seed)
    triplets = np.unique(rng.integers(len(MODULES), size=(n_triplets, 3)), axis=0)
    width = np.array([*WIDE, *WIDE, 2.0, 1.5])[:, None]
    bounds = {}
    for kind in MapWindows:
        middle = rng.uniform(-0.5, 0.5, (len(FEATURES), len(triplets))) * width
        reach = rng.uniform(0.2, 2.0, middle.shape) * width
        bounds[kind] = Bounds(middle - reach, middle + reach)
    return ModuleMap("by hand", MODULES, triplets, np.ones(len(triplets), np.int64), bounds)


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


def plainly(hits: Columns, module_map: ModuleMap, windows: MapWindows) -> Pairs:
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

    found = set()
    bounds = module_map.bounds[windows]
    for i, triplet in enumerate(module_map.triplets):
        candidates = [on.get(tuple(module_map.modules[row].tolist()), []) for row in triplet]
        for a, b, c in product(*candidates):
            if not order.index(a) < order.index(b) < order.index(c):
                continue
            slopes = [(z[k] - z[j]) / (r[k] - r[j]) for j, k in ((a, b), (b, c))]
            bend = angle(x[b] - x[a], y[b] - y[a], x[c] - x[b], y[c] - y[b])
            features = [*doublet(a, b), *doublet(b, c), slopes[1] - slopes[0], bend]
            ends = zip(bounds.lower[:, i], features, bounds.upper[:, i], strict=True)
            if all(low <= feature <= high for low, feature, high in ends):
                found |= {(a, b), (b, c)}
    return found


def an_event(hits: Columns) -> Event:
    return Event("event000000001", hits)


def as_set(edges: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Pairs:
    pairs = {(int(a), int(b)) for a, b in edges.T}
    assert len(pairs) == edges.shape[1], "no doublet twice"
    return pairs


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 45), st.integers(0, 10**6), st.sampled_from(MapWindows))
def test_equals_a_plain_search(n: int, seed: int, windows: MapWindows) -> None:
    hits, module_map = some_hits(n, seed), some_map(seed)
    edges = ModuleMapBuilder(module_map, windows).doublets(an_event(hits))
    assert edges.dtype == np.int64
    assert edges.shape[0] == 2
    assert as_set(edges) == plainly(hits, module_map, windows)


def test_the_plain_search_finds_some_and_leaves_some() -> None:
    """Otherwise the comparison above would say little."""
    hits, module_map = some_hits(45, 3), some_map(3)
    found = plainly(hits, module_map, MapWindows.MINMAX)
    wide = {
        kind: Bounds(np.full_like(b.lower, -1e9), np.full_like(b.upper, 1e9))
        for kind, b in module_map.bounds.items()
    }
    assert len(found) > 10
    assert len(found) < 0.7 * len(plainly(hits, replace(module_map, bounds=wide), MINMAX))


def test_a_doublet_alone_is_not_enough() -> None:
    """Two hits that pass all windows of a doublet are joined only with a third one."""
    module_map = some_map(0)
    on = replace(
        module_map,
        triplets=np.array([[1, 0, 3]]),
        bounds={MINMAX: Bounds(np.full((10, 1), -1e9), np.full((10, 1), 1e9))},
    )
    hits = {
        "hit_id": np.arange(1, 4),
        "x": np.array([30.0, 70.0, 110.0]),
        "y": np.array([1.0, 2.0, 4.0]),
        "z": np.array([5.0, 9.0, 15.0]),
        **dict(zip(("volume_id", "layer_id", "module_id"), MODULES[[1, 0, 3]].T, strict=True)),
    }
    builder = ModuleMapBuilder(on, MINMAX)
    assert as_set(builder.doublets(an_event(hits))) == {(0, 1), (1, 2)}
    fewer = {name: column[:2] for name, column in hits.items()}
    assert builder.doublets(an_event(fewer)).shape == (2, 0)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    builder, event = ModuleMapBuilder(some_map(3), MINMAX), an_event(some_hits(45, 3))
    whole = builder.doublets(event)
    assert whole.size
    monkeypatch.setattr(doublets, "CHUNK", chunk)
    assert np.array_equal(builder.doublets(event), whole)


def test_modules_never_seen_give_no_edges_and_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    event = simulate_event(30, seed=5)
    graph = build_graph(event, ModuleMapBuilder(some_map(3), MINMAX))
    assert (graph.n_nodes, graph.n_edges) == (len(event.hits["hit_id"]), 0)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{event.name}: {graph.n_nodes:,} of {graph.n_nodes:,} hits are on")
