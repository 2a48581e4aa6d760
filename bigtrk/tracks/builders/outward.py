"""Edges that lead away from the origin, as builders need them that follow edges.

Shapes: N hits, E edges of the graph, K edges kept.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph

DECIMALS = 6  # of a distance in mm


class Edges(NamedTuple):
    """Directed edges: source [K], destination [K] int64 and score [K] float64."""

    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    score: NDArray[np.float64]

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Edges":
        """Chooses edges by a mask [K] or by their rows."""
        return Edges(self.source[chosen], self.destination[chosen], self.score[chosen])


def outward_edges(graph: ScoredGraph, score_cut: float) -> Edges:
    """Directs the edges with a score above `score_cut` away from the origin: [E] -> [K].

    Of hits at the same distance the one with the lower number comes first. So there are no cycles;
    edges from a hit to itself are left out.
    """
    kept = (graph.scores > score_cut) & (graph.edge_index[0] != graph.edge_index[1])
    one, other = graph.edge_index[:, kept]
    # Sines differ between machines in the last bit, and hits on a cylinder are equally far.
    distance = np.linalg.norm(graph.position, axis=1).round(DECIMALS)
    near, far = distance[one], distance[other]
    inward = (near > far) | ((near == far) & (one > other))
    source, destination = np.where(inward, other, one), np.where(inward, one, other)
    return Edges(source, destination, graph.scores[kept].astype(np.float64))


def best_at(
    here: NDArray[np.int64], there: NDArray[np.int64], score: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Marks the best edge at each hit `here`: [K] each -> [K].

    Of equal scores that to the hit `there` with the lower number is better.
    """
    order = np.lexsort((there, -score, here))
    begins = np.diff(here[order], prepend=-1) != 0
    best = np.zeros(len(here), bool)
    best[order[begins]] = True
    return best
