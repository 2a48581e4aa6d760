"""Longest paths in Python, where there is no C compiler."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.builders.paths.rule import Rule
from bigtrk.tracks.builders.paths.successors import Successors

UNUSED = -2


def take_paths(graph: Successors, rule: Rule) -> NDArray[np.int64]:
    """Returns the path of each node [V], or NO_TRACK; paths are numbered as they are taken.

    From each unused node in turn: of the paths over unused nodes that `rule` follows the longest
    is taken, of those equally long the one that follows better edges first. Where that is too
    short, the node alone is used up.
    """
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
