"""The interface of track builders, which read an event's scored graph and return each hit's track.

Builders share the outward edges and the components of hits that edges join. Shapes: N hits, E edges
of the graph, K edges kept.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bigtrk.native_code import NATIVE, compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NO_TRACK = -1  # track_id of a hit in no track
# Fused multiply-add would round distances differently from the Python code.
CODE = "tracks", Path(__file__).with_name("tracks.c"), (), (NATIVE, "-ffp-contract=off")


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled C code; None if it cannot be compiled or loaded."""
    found = compiled(*CODE)
    if found is not None:
        found.unite.restype = ctypes.c_long
    return found


@dataclass(frozen=True)
class ScoredGraph:
    """An event's scored graph: all that a track builder may read.

    edge_index [2, E] int64: the inner and the outer hit of each edge; scores [E]: in [0, 1].
    position [N, 3] float64: x, y, z of hits (mm). modules [N, 3] int64: volume, layer, module of
    hits, or None if unknown.
    """

    edge_index: NDArray[np.int64]
    scores: NDArray[np.floating]
    position: NDArray[np.float64]
    modules: NDArray[np.int64] | None

    @property
    def n_hits(self) -> int:
        return len(self.position)


class TrackBuilder(Protocol):
    """Makes the tracks of an event. The order and the choice among ties depend only on its inputs,
    so tracks are the same on any machine and for any order of edges.
    """

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        """Returns each hit's track [N], or NO_TRACK. Tracks have at least `min_hits` hits, and are
        numbered from 0 by their first hit.
        """
        ...


def numbered(group: NDArray[np.int64], min_hits: int) -> NDArray[np.int64]:
    """Converts groups of hits to tracks. group [N]: a group number, or NO_TRACK -> track [N].

    Groups of fewer than `min_hits` hits are no tracks; the others are numbered from 0, by their
    first hit.
    """
    label, first, row, size = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    is_track = (size >= min_hits) & (label != NO_TRACK)
    number = np.full(len(label), NO_TRACK, np.int64)
    by_first_hit = np.argsort(first)
    tracks = by_first_hit[is_track[by_first_hit]]
    number[tracks] = np.arange(len(tracks))
    return number[row]


DECIMALS = 6  # of a distance in mm


class Edges(NamedTuple):
    """Directed edges: source [K], destination [K] int64 and score [K] float64."""

    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    score: NDArray[np.float64]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Edges":
        """Selects edges by a mask [K] or by indices."""
        return Edges(self.source[chosen], self.destination[chosen], self.score[chosen])


def outward_edges(graph: ScoredGraph, score_cut: float) -> Edges:
    """Returns the edges with a score above `score_cut`, directed away from the origin: [E] -> [K].

    If two hits are at the same distance, the one with the lower number comes first. So there are no
    cycles. Edges from a hit to itself are left out.
    """
    kept = (graph.scores > score_cut) & (graph.edge_index[0] != graph.edge_index[1])
    one, other = graph.edge_index[:, kept]
    # Rounded, since sines differ between machines in the last bit, which would decide among hits
    # of one cylinder.
    distance = np.linalg.norm(graph.position, axis=1).round(DECIMALS)
    near, far = distance[one], distance[other]
    inward = (near > far) | ((near == far) & (one > other))
    source, destination = np.where(inward, other, one), np.where(inward, one, other)
    return Edges(source, destination, graph.scores[kept].astype(np.float64))


def best_at(
    here: NDArray[np.int64],
    there: NDArray[np.int64],
    score: NDArray[np.floating] | NDArray[np.int64],
    most: int = 1,
) -> NDArray[np.bool_]:
    """Marks the `most` best of the pairs that share a value of `here`: those of highest score. Of
    equal scores, the pair with the lower `there` is better. [K] each -> [K].
    """
    order = np.lexsort((there, -score, here))
    rank = np.arange(len(order)) - np.searchsorted(here[order], here[order])
    best = np.zeros(len(here), bool)
    best[order[rank < most]] = True
    return best


def adjacency(
    source: NDArray[np.int64], destination: NDArray[np.int64], n_hits: int
) -> "csr_matrix":
    """Returns the adjacency matrix of edges, repeated ones once: [K], [K] -> [N, N] bool."""
    from scipy.sparse import coo_matrix  # a training without tracks does not wait for it

    joined = np.ones(len(source), bool)
    return coo_matrix((joined, (source, destination)), (n_hits, n_hits)).tocsr()


def components(joined: "csr_matrix") -> NDArray[np.int64]:
    """Numbers the connected components, ignoring edges' directions: [N, N] -> [N]."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(joined, directed=False)
    return np.asarray(component, np.int64)
