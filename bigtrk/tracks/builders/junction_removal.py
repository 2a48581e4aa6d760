"""Tracks as chains: where edges meet, the best alone is kept.

This is the junction removal of ACTS's GNN plugin (`CudaTrackBuilding`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph, numbered
from bigtrk.tracks.builders.components import adjacency, components
from bigtrk.tracks.builders.outward import best_at, outward_edges


@dataclass(frozen=True)
class JunctionRemoval:
    """Keeps, of the edges with a score above `score_cut`, those that are the best out of their
    inner hit and the best into their outer hit; hits that they join are a track.

    Both are judged at once, as in ACTS: an edge that loses at one end still beats others at the
    other. Of equal scores that to the hit with the lower number is better.
    """

    score_cut: float = 0.5

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        source, destination, score = outward_edges(graph, self.score_cut)
        best = best_at(source, destination, score) & best_at(destination, source, score)
        kept = adjacency(source[best], destination[best], graph.n_hits)
        return numbered(components(kept), min_hits)
