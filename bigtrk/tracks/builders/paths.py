"""Finds the longest paths of a graph, one after another.

Shapes: N hits, K edges, V hits that have edges, renumbered so that edges lead to higher numbers.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK, Edges, adjacency


class Successors(NamedTuple):
    """Edges by source: rows first[v] to first[v + 1] - 1 lead out of node v, the best one first.

    first [V + 1], target [K] int64; score [K] float64; hit [V] int64: the hit of each node.
    """

    first: NDArray[np.int64]
    target: NDArray[np.int64]
    score: NDArray[np.float64]
    hit: NDArray[np.int64]


def _successors(edges: Edges, n_hits: int) -> Successors:
    """Sorts edges [K] by source node and falling score; ties by the destination's hit number.

    Nodes are hits in topological order: by the number of edges of the longest path that ends at the
    hit, then by hit number.
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
    """Counts the edges of the longest path that ends at each hit [N]; -1 for hits without edges."""
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


UNUSED = -2  # of a node that is in no path yet


def longest_paths(
    edges: Edges, n_hits: int, min_hits: int, best: float, others: float
) -> NDArray[np.int64]:
    """Returns the number of the path that each hit is in [N], or NO_TRACK, in order of taking.

    Each unused node in turn starts paths over unused nodes, which follow the best edge if its score
    is above `best`, and each other edge if its score is above `others`. The longest path is taken;
    of equally long ones, the one that follows better edges first. If it has fewer than `min_hits`
    hits, only the starting node is used up.
    """
    graph = _successors(edges, n_hits)
    path, first = [UNUSED] * len(graph.hit), graph.first.tolist()
    out = list(zip(graph.target.tolist(), graph.score.tolist(), strict=True))

    def followed(node: int) -> Iterator[int]:
        lowest = best
        for target, score in out[first[node] : first[node + 1]]:
            if path[target] == UNUSED:
                if score <= lowest:
                    return
                yield target
                lowest = others

    number = 0
    for start in range(len(path)):
        if path[start] != UNUSED:
            continue
        ways: dict[int, list[int]] = {}
        waiting = [start]
        while waiting:
            if (node := waiting.pop()) not in ways:
                ways[node] = list(followed(node))
                waiting += ways[node]
        length, following = dict.fromkeys(ways, 1), dict.fromkeys(ways, -1)
        # Edges lead to later nodes, so these are computed first.
        for node in sorted(ways, reverse=True):
            for target in ways[node]:
                if length[target] >= length[node]:
                    length[node], following[node] = length[target] + 1, target
        path[start] = NO_TRACK
        if length[start] >= min_hits:
            node = start
            while node >= 0:
                path[node], node = number, following[node]
            number += 1
    of_hit = np.full(n_hits, NO_TRACK, np.int64)
    of_hit[graph.hit] = path
    return of_hit
