"""Doublets against a loop over all pairs of hits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigtrk.events.event import Columns
from bigtrk.graphs.builders import windows as doublets
from bigtrk.graphs.builders.windows import LayerPair, Windows, build_doublets

LAYERS = ((8, 2), (8, 4), (9, 2))
Pairs = set[tuple[int, int]]


def a_pair(inner: int, outer: int, **cuts: object) -> LayerPair:
    chosen = {"phi_slope": 0.05, "dphi": 0.6, "z0": (-200, 300), "deta": (-1.0, 0.8), **cuts}
    pair = {"inner": LAYERS[inner], "outer": LAYERS[outer], "edges": 1, **chosen}
    return LayerPair.model_validate(pair)


WINDOWS = Windows(made="by hand", pairs=(a_pair(0, 1), a_pair(1, 2, dphi=2.9), a_pair(0, 2)))


def some_hits(n: int, seed: int) -> Columns:
    """Hits of any phi, half of them within 0.3 rad of the wrap, on overlapping radii."""
    rng = np.random.default_rng(seed)
    layer = rng.integers(3, size=n)
    near_wrap = np.pi + rng.uniform(-0.3, 0.3, n)
    phi = np.where(rng.random(n) < 0.5, near_wrap, rng.uniform(-np.pi, np.pi, n))
    # Some radii are equal, and none 5 mm apart, where rounding would decide.
    r = 40.0 * (layer + 1) + 2 * np.round(rng.uniform(-10, 10, n))
    volume_id, layer_id = np.array(LAYERS)[layer].T
    return {
        "x": r * np.cos(phi),
        "y": r * np.sin(phi),
        "z": rng.uniform(-300, 300, n),
        "volume_id": volume_id,
        "layer_id": layer_id,
    }


def brute_force(hits: Columns, windows: Windows) -> Pairs:
    """Finds doublets by scalar arithmetic on each ordered pair of hits."""
    x, y, z, volume, layer = (hits[k].tolist() for k in ("x", "y", "z", "volume_id", "layer_id"))
    found = set()
    for cut in windows.pairs:
        for a in range(len(x)):
            for b in range(len(x)):
                if (volume[a], layer[a]) != cut.inner or (volume[b], layer[b]) != cut.outer:
                    continue
                ra, rb = math.hypot(x[a], y[a]), math.hypot(x[b], y[b])
                # The angle between two vectors knows no wrap.
                dphi = abs(math.atan2(x[a] * y[b] - x[b] * y[a], x[a] * x[b] + y[a] * y[b]))
                deta = math.asinh(z[b] / rb) - math.asinh(z[a] / ra)
                slope, z0 = 0.0, 0.0
                if abs(rb - ra) < 5.0:
                    outward = abs(z[b]) > abs(z[a])
                else:
                    outward = rb > ra
                    slope = dphi / abs(rb - ra)
                    z0 = z[a] - ra * (z[b] - z[a]) / (rb - ra)
                if not outward or dphi > cut.dphi or slope > cut.phi_slope:
                    continue
                if cut.z0[0] <= z0 <= cut.z0[1] and cut.deta[0] <= deta <= cut.deta[1]:
                    found.add((a, b))
    return found


def as_set(edges: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Pairs:
    pairs = {(int(a), int(b)) for a, b in edges.T}
    assert len(pairs) == edges.shape[1], "no doublet twice"
    return pairs


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 60), st.integers(0, 10**6))
def test_equals_brute_force(n: int, seed: int) -> None:
    hits = some_hits(n, seed)
    edges = build_doublets(hits, WINDOWS)
    assert edges.dtype == np.int64
    assert edges.shape[0] == 2
    assert as_set(edges) == brute_force(hits, WINDOWS)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    hits = some_hits(80, 3)
    whole = build_doublets(hits, WINDOWS)
    monkeypatch.setattr(doublets, "CHUNK", chunk)
    assert np.array_equal(build_doublets(hits, WINDOWS), whole)
