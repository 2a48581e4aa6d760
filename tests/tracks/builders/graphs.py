"""Makes scored graphs for tests of track builders."""

from collections.abc import Sequence

import numpy as np

from bigtrk.tracks.builders.builder import ScoredGraph

Edge = tuple[int, int, float]  # two hits and a score


def on_a_line(edges: Sequence[Edge], n_hits: int) -> ScoredGraph:
    """Makes a graph of hits in their order from the origin."""
    x = np.arange(1.0, n_hits + 1)
    return at(np.stack([x, 0 * x, 0 * x], axis=1), edges)


def at(position: np.ndarray, edges: Sequence[Edge]) -> ScoredGraph:
    """Makes a graph of hits at `position` [N, 3]."""
    ends = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2).T
    scores = np.array([edge[2] for edge in edges], np.float64)
    return ScoredGraph(ends, scores, position, modules=None)


def groups(track_id: np.ndarray) -> list[list[int]]:
    """Lists the hits of each track, in the order of the tracks."""
    return [np.flatnonzero(track_id == track).tolist() for track in range(track_id.max() + 1)]
