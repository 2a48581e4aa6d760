"""Finds the longest paths of a graph, one after another.

Shapes: N hits, K edges.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK, Edges, adjacency


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


UNUSED = -2  # of a hit that is in no path yet


def longest_paths(
    edges: Edges, n_hits: int, min_hits: int, best: float, others: float
) -> NDArray[np.int64]:
    """Returns the number of the path that each hit is in [N], or NO_TRACK, in order of taking.

    Each unused hit in turn starts paths over unused hits, which follow the best edge if its score
    is above `best`, and each other edge if its score is above `others`. Hits are in topological
    order: by the number of edges of the longest path that ends at the hit, then by hit number. Of
    equal scores, the edge to the hit with the lower number is better. The longest path is taken; of
    equally long ones, the one that follows better edges first. If it has fewer than `min_hits`
    hits, only the starting hit is used up.
    """
    depth = _depth(edges, n_hits)
    edges = edges.where(np.lexsort((edges.destination, -edges.score, edges.source)))
    first = np.searchsorted(edges.source, np.arange(n_hits + 1)).tolist()
    out = list(zip(edges.destination.tolist(), edges.score.tolist(), strict=True))
    path = np.where(depth < 0, NO_TRACK, UNUSED).tolist()

    def followed(hit: int) -> Iterator[int]:
        lowest = best
        for target, score in out[first[hit] : first[hit + 1]]:
            if path[target] == UNUSED:
                if score <= lowest:
                    return
                yield target
                lowest = others

    number = 0
    for start in np.argsort(depth, kind="stable").tolist():
        if path[start] != UNUSED:
            continue
        ways: dict[int, list[int]] = {}
        waiting = [start]
        while waiting:
            if (hit := waiting.pop()) not in ways:
                ways[hit] = list(followed(hit))
                waiting += ways[hit]
        length, following = dict.fromkeys(ways, 1), dict.fromkeys(ways, -1)
        # Edges lead to deeper hits, so these are computed first.
        for hit in sorted(ways, key=depth.item, reverse=True):
            for target in ways[hit]:
                if length[target] >= length[hit]:
                    length[hit], following[hit] = length[target] + 1, target
        path[start] = NO_TRACK
        if length[start] >= min_hits:
            hit = start
            while hit >= 0:
                path[hit], hit = number, following[hit]
            number += 1
    return np.array(path, np.int64)
