"""Tracks as the longest paths along edges that are chosen beforehand.

This is the fast walkthrough of GNN4ITk's acorn (`FastWalkthrough`), each hit in one track.
"""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.chains import chains_and_paths
from bigtrk.tracks.builders.outward import Edges, best_at, outward_edges
from bigtrk.tracks.builders.paths.longest import longest_paths
from bigtrk.tracks.builders.paths.rule import Rule


@dataclass(frozen=True)
class FastWalk:
    """Edges with a score above `score_cut` are directed outward; components that are simple chains
    are tracks. In the others each hit keeps its best edge out, if its score is at least
    `min_score`, and those whose score is above `add_score`. Then each hit in topological order that
    is in no track yet starts a walk along all of them, and the longest path is a track.

    Unlike `Walk`, it does not turn to the next best edge where the best leads to a hit of another
    track: the path ends there (acorn drops such a path). Ties and starts of short paths are as
    there.
    """

    score_cut: float = 0.01
    min_score: float = 0.1
    add_score: float = 0.6

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        every_edge = Rule(best=-inf, others=-inf, min_hits=min_hits)
        return chains_and_paths(
            outward_edges(graph, self.score_cut),
            graph.n_hits,
            min_hits,
            lambda edges: longest_paths(self._chosen(edges), graph.n_hits, every_edge),
        )

    def _chosen(self, edges: Edges) -> Edges:
        best = best_at(edges.source, edges.destination, edges.score)
        return edges.where(
            (best & (edges.score >= self.min_score)) | (edges.score > self.add_score)
        )
