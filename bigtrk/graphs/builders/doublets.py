"""Doublets: pairs of hits on allowed layer pairs that a track of the target could join.

Shapes: N hits, E doublets, K candidates of one chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns
from bigtrk.graphs.builders.windows import Layer, LayerPair, Windows
from bigtrk.graphs.coordinates import Floats, Ints, doublet_columns, hit_coordinates

CHUNK = 1_000_000  # candidates tested at a time: about 100 MB
# Phi differences are tested exactly after the search, which rounds differently at the wrap.
SLACK = 1e-9  # rad


@dataclass(frozen=True)
class LayerHits:
    """The hits of one layer sorted by phi, repeated one turn below and above.

    row [3 n]: row of the event; phi [3 n] (rad), ascending; the hits themselves lie in the middle.
    """

    row: Ints
    phi: Floats
    r_max: float

    @property
    def own(self) -> slice:
        n = len(self.row) // 3
        return slice(n, 2 * n)


def build_doublets(hits: Columns, windows: Windows) -> Ints:
    """Builds all doublets of `hits` [N] that pass `windows`: [2, E] rows of hits, inner then outer.

    Only outward pairs (dr > 0) are kept: a particle worth finding does not turn back inside the
    detector. They are ordered by layer pair. No truth is needed.
    """
    found = [doublets for _, doublets in doublets_by_pair(hits, windows)]
    return np.concatenate([np.empty((2, 0), dtype=np.int64), *found], axis=1)


def doublets_by_pair(hits: Columns, windows: Windows) -> Iterator[tuple[LayerPair, Ints]]:
    """Yields the doublets [2, E] of each layer pair of `windows` that has hits on both layers."""
    nodes = hit_coordinates(hits)
    layers = _hits_by_layer(hits, nodes)
    for pair in windows.pairs:
        if pair.inner in layers and pair.outer in layers:
            yield pair, np.concatenate(list(_doublets_of(pair, layers, nodes)), axis=1)


def _hits_by_layer(hits: Columns, nodes: dict[str, Floats]) -> dict[Layer, LayerHits]:
    volume, layer = (hits[name].astype(np.int64) for name in ("volume_id", "layer_id"))
    order = np.lexsort((nodes["phi"], layer, volume))
    new = np.diff(volume[order]).astype(bool) | np.diff(layer[order]).astype(bool)
    layers = {}
    for rows in np.split(order, np.flatnonzero(new) + 1) if len(order) else []:
        phi = nodes["phi"][rows]
        layers[int(volume[rows[0]]), int(layer[rows[0]])] = LayerHits(
            row=np.tile(rows, 3),
            phi=np.concatenate([phi - 2 * np.pi, phi, phi + 2 * np.pi]),
            r_max=float(nodes["r"][rows].max()),
        )
    return layers


def _doublets_of(
    pair: LayerPair, layers: dict[Layer, LayerHits], nodes: dict[str, Floats]
) -> Iterator[Ints]:
    inner, outer = layers[pair.inner], layers[pair.outer]
    rows, phi = inner.row[inner.own], inner.phi[inner.own]
    reach = np.minimum(pair.dphi, pair.phi_slope * np.maximum(outer.r_max - nodes["r"][rows], 0.0))
    first = np.searchsorted(outer.phi, phi - reach - SLACK, side="left")
    last = np.searchsorted(outer.phi, phi + reach + SLACK, side="right")
    for part in chunks(last - first):
        candidates = expand(rows[part], first[part], last[part], outer.row)
        yield candidates.compress(_passes(doublet_columns(nodes, candidates), pair), axis=1)


def chunks(counts: Ints) -> Iterator[slice]:
    """Yields slices of consecutive rows with at most CHUNK candidates together, or of one row."""
    total = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + CHUNK, side="right")))
        yield slice(start, stop)
        start = stop


def expand(rows: Ints, first: Ints, last: Ints, outer_row: Ints) -> Ints:
    """Pairs each of `rows` [n] with its outer_row[first:last]: [2, K]."""
    counts = last - first
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([np.repeat(rows, counts), outer_row[np.repeat(first, counts) + offset]])


def _passes(columns: dict[str, Floats], pair: LayerPair) -> NDArray[np.bool_]:
    z0, deta = columns["z0"], columns["deta"]
    return (
        (columns["dr"] > 0)
        & (np.abs(columns["dphi"]) <= pair.dphi)
        & (np.abs(columns["phi_slope"]) <= pair.phi_slope)
        & (z0 >= pair.z0[0])
        & (z0 <= pair.z0[1])
        & (deta >= pair.deta[0])
        & (deta <= pair.deta[1])
    )
