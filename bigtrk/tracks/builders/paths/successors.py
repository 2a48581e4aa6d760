"""Directed edges without cycles by their source, as walks read them.

Shapes: N hits, K edges, V hits that have edges, numbered anew so that each edge leads to a later
one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.components import adjacency
from bigtrk.tracks.builders.outward import Edges


class Successors(NamedTuple):
    """The edges out of node v, the best first, are rows first[v] to first[v + 1] - 1.

    first [V + 1], target [K] int64; score [K] float64; hit [V] int64: the hit that each node is.
    """

    first: NDArray[np.int64]
    target: NDArray[np.int64]
    score: NDArray[np.float64]
    hit: NDArray[np.int64]


def successors(edges: Edges, n_hits: int) -> Successors:
    """Sorts edges [K] of N hits: of equal scores that to the hit with the lower number is first.

    Nodes are ordered topologically: hits without edges into them first, and each other hit by the
    number of edges of the longest path to it; then by the hits' numbers.
    """
    depth = _depth(edges, n_hits)
    hit = np.argsort(depth, kind="stable")
    hit = hit[depth[hit] >= 0]
    node = np.empty(n_hits, np.int64)
    node[hit] = np.arange(len(hit))
    source = node[edges.source]
    order = np.lexsort((edges.destination, -edges.score, source))
    first = np.zeros(len(hit) + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=len(hit)), out=first[1:])
    return Successors(first, node[edges.destination[order]], edges.score[order], hit)


def _depth(edges: Edges, n_hits: int) -> NDArray[np.int64]:
    """Counts the edges of the longest path to each hit [N]; -1 for hits without edges."""
    following = adjacency(edges.source, edges.destination, n_hits)
    awaited = np.bincount(following.indices, minlength=n_hits)
    depth = np.full(n_hits, -1)
    front = np.flatnonzero((awaited == 0) & (np.diff(following.indptr) > 0))
    step = 0
    while len(front):
        depth[front] = step
        reached, times = np.unique(following[front].indices, return_counts=True)
        awaited[reached] -= times
        front, step = reached[awaited[reached] == 0], step + 1
    return depth
