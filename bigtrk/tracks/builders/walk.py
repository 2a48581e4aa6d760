"""Tracks as the longest paths along good edges.

These are the connected components and walk of GNN4ITk's acorn (`CCandWalk`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.chains import chains_and_paths
from bigtrk.tracks.builders.outward import outward_edges
from bigtrk.tracks.builders.paths.longest import longest_paths
from bigtrk.tracks.builders.paths.rule import Rule


@dataclass(frozen=True)
class Walk:
    """Edges with a score above `score_cut` are directed outward; components that are simple chains
    are tracks. In the others, each hit in topological order that is in no track yet starts a walk:
    it follows the best edge to such a hit if its score is above `min_score`, and branches to every
    other whose score is above `add_score`. The longest path is a track.

    Of equally long paths that one is taken which follows better edges first; of edges with equal
    scores that to the hit with the lower number is better. A start whose longest path is too short
    for a track starts and joins no other.
    """

    score_cut: float = 0.01
    min_score: float = 0.1
    add_score: float = 0.6

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        rule = Rule(best=self.min_score, others=self.add_score, min_hits=min_hits)
        return chains_and_paths(
            outward_edges(graph, self.score_cut),
            graph.n_hits,
            min_hits,
            lambda edges: longest_paths(edges, graph.n_hits, rule),
        )
