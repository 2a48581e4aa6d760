"""Track builders that read only edges above a score: components, junction removal and walks.

Shapes: N hits, K edges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import (
    NO_TRACK,
    Edges,
    ScoredGraph,
    adjacency,
    best_at,
    components,
    numbered,
    outward_edges,
)
from bigtrk.tracks.builders.paths import longest_paths
from bigtrk.tracks.names import BuilderName


@dataclass(frozen=True)
class Components:
    """Connected components: hits joined by edges with a score above `score_cut` form a track."""

    score_cut: float = 0.5

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        source, destination = graph.edge_index[:, graph.scores > self.score_cut]
        return numbered(components(adjacency(source, destination, graph.n_hits)), min_hits)


@dataclass(frozen=True)
class JunctionRemoval:
    """Keeps each edge with a score above `score_cut` that is both the best out of its inner hit and
    the best into its outer hit; hits joined by kept edges form a track.

    Both tests use all edges, as in ACTS: an edge that loses at one end still beats others at the
    other end. Of equal scores, the edge to the hit with the lower number is better.
    """

    score_cut: float = 0.5

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        source, destination, score = outward_edges(graph, self.score_cut)
        best = best_at(source, destination, score) & best_at(destination, source, score)
        kept = adjacency(source[best], destination[best], graph.n_hits)
        return numbered(components(kept), min_hits)


@dataclass(frozen=True)
class Walk:
    """Directs edges with a score above `score_cut` outward. Components that are simple chains (at
    most one edge in and one out of each hit) are tracks. In the others, each hit in topological
    order that is in no track yet starts a walk. It follows the best edge to such a hit if its score
    is above `min_score`, and branches along every other edge with a score above `add_score`. The
    longest path becomes a track.

    Of equally long paths it takes the one that follows better edges first; of edges with equal
    scores, the edge to the hit with the lower number is better. A hit whose longest path is too
    short for a track starts and joins no other path.

    Without `turns` it is the fast walk: each hit keeps its best edge out, if its score is at least
    `min_score`, and edges above `add_score`, before any walk starts. If the best edge leads to a
    hit of another track, it does not turn to the next best: the path ends there (acorn drops it).
    """

    score_cut: float = 0.01
    min_score: float = 0.1
    add_score: float = 0.6
    turns: bool = True

    def __call__(self, graph: ScoredGraph, min_hits: int) -> NDArray[np.int64]:
        edges, n_hits = outward_edges(graph, self.score_cut), graph.n_hits
        joined = adjacency(edges.source, edges.destination, n_hits)
        component = components(joined)
        outgoing = np.diff(joined.indptr)
        incoming = np.bincount(joined.indices, minlength=n_hits)
        branched = np.zeros(n_hits, bool)
        branched[component[(outgoing > 1) | (incoming > 1)]] = True
        in_chain = ~branched[component]
        path = self._paths(edges.where(~in_chain[edges.source]), n_hits, min_hits)
        # Component numbers are below n_hits, so paths get other numbers.
        apart = np.where(path == NO_TRACK, NO_TRACK, path + n_hits)
        return numbered(np.where(in_chain, component, apart), min_hits)

    def _paths(self, edges: Edges, n_hits: int, min_hits: int) -> NDArray[np.int64]:
        """Returns the number of the path that each hit is in [N], or NO_TRACK."""
        if self.turns:
            return longest_paths(edges, n_hits, min_hits, self.min_score, self.add_score)
        best = best_at(edges.source, edges.destination, edges.score) & (
            edges.score >= self.min_score
        )
        chosen = edges.where(best | (edges.score > self.add_score))
        return longest_paths(chosen, n_hits, min_hits, best=-inf, others=-inf)


# A track builder that reads only edges with a score above its `score_cut`.
CutBuilder = Components | JunctionRemoval | Walk
BUILDERS: dict[BuilderName, Callable[..., CutBuilder]] = {
    BuilderName.COMPONENTS: Components,
    BuilderName.JUNCTION_REMOVAL: JunctionRemoval,
    BuilderName.WALK: Walk,
    BuilderName.FAST_WALK: partial(Walk, turns=False),
}


def make_builder(name: BuilderName, score_cut: float | None = None) -> CutBuilder:
    """Makes the track builder `name`; `score_cut` None stands for the builder's default."""
    return BUILDERS[name](**({} if score_cut is None else {"score_cut": score_cut}))
