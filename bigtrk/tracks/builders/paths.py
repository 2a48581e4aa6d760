"""The longest paths of a graph, one after another, in Python or in C (tracks.c).

Shapes: N hits, K edges, V hits that have edges, numbered anew so that each edge leads to a later
one.
"""

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.native_code import pointers
from bigtrk.tracks.builders.builder import NO_TRACK, Edges, adjacency, library


class Rule(NamedTuple):
    """Follows, of the edges to unused hits, the best if its score is above `best`, and those others
    whose score is above `others`.

    Paths of fewer than `min_hits` hits are not taken.
    """

    best: float
    others: float
    min_hits: int


class Successors(NamedTuple):
    """The edges out of node v, the best first, are rows first[v] to first[v + 1] - 1.

    first [V + 1], target [K] int64; score [K] float64; hit [V] int64: the hit that each node is.
    """

    first: NDArray[np.int64]
    target: NDArray[np.int64]
    score: NDArray[np.float64]
    hit: NDArray[np.int64]


def _successors(edges: Edges, n_hits: int) -> Successors:
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


UNUSED = -2  # of a node that is in no path yet


def longest_paths(edges: Edges, n_hits: int, rule: Rule) -> NDArray[np.int64]:
    """Returns the path of each hit [N], or NO_TRACK; paths are numbered as they are taken.

    From each unused node in turn: of the paths over unused nodes that `rule` follows the longest
    is taken, of those equally long the one that follows better edges first. Where that is too
    short, the node alone is used up.

    Compiled code takes the same paths where there is a C compiler.
    """
    graph, found = _successors(edges, n_hits), library()
    n_nodes = len(graph.hit)
    paths = np.full(n_nodes, UNUSED, np.int64)
    if found is None:
        paths = _plain_paths(graph, rule)
    else:
        scratch = np.full(5 * n_nodes, -1, np.int64)
        found.take_paths(
            *pointers(graph.first, graph.target, graph.score),
            ctypes.c_long(n_nodes),
            ctypes.c_double(rule.best),
            ctypes.c_double(rule.others),
            ctypes.c_long(rule.min_hits),
            *pointers(scratch, paths),
        )
    path = np.full(n_hits, NO_TRACK, np.int64)
    path[graph.hit] = paths
    return path


def _plain_paths(graph: Successors, rule: Rule) -> NDArray[np.int64]:
    walk = _Walk(graph, rule)
    number = 0
    for start in range(len(graph.hit)):
        if walk.path[start] == UNUSED:
            nodes = walk.longest(start)
            taken = len(nodes) >= rule.min_hits
            for node in nodes if taken else nodes[:1]:
                walk.path[node] = number if taken else NO_TRACK
            number += taken
    return np.array(walk.path, np.int64)


class _Walk:
    def __init__(self, graph: Successors, rule: Rule) -> None:
        self.path = [UNUSED] * len(graph.hit)
        self._first = graph.first.tolist()
        self._edges = list(zip(graph.target.tolist(), graph.score.tolist(), strict=True))
        self._rule = rule

    def longest(self, start: int) -> list[int]:
        """Returns the nodes of the longest path from a start."""
        ways = self._reachable(start)
        length, following = dict.fromkeys(ways, 1), dict.fromkeys(ways, -1)
        # Edges lead to later nodes, so that these are known first.
        for node in sorted(ways, reverse=True):
            for target in ways[node]:
                if length[target] >= length[node]:
                    length[node], following[node] = length[target] + 1, target
        nodes = [start]
        while following[nodes[-1]] >= 0:
            nodes.append(following[nodes[-1]])
        return nodes

    def _reachable(self, start: int) -> dict[int, list[int]]:
        ways = {start: list(self._followed(start))}
        waiting = [start]
        while waiting:
            for target in ways[waiting.pop()]:
                if target not in ways:
                    ways[target] = list(self._followed(target))
                    waiting.append(target)
        return ways

    def _followed(self, node: int) -> Iterator[int]:
        lowest = self._rule.best
        for target, score in self._edges[self._first[node] : self._first[node + 1]]:
            if self.path[target] == UNUSED:
                if score <= lowest:
                    return
                yield target
                lowest = self._rule.others
