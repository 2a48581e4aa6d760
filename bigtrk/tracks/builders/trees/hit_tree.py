"""Trees of hits: united by edges of falling score, so that every cut's groups are in one tree.

Kruskal's algorithm: each edge in turn unites the groups of its two hits, unless no track may hold
the hits of both. Every union is a node of a binary tree and a candidate for a track; the best cut
of one track need not be that of another.

Shapes: N hits, E edges, M unions (fewer than N).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bigtrk.tracks.builders.builder import ScoredGraph
from bigtrk.tracks.builders.trees import native, plain
from bigtrk.tracks.builders.trees.constraints import Constraints, Ids, Values

# Edges of lower scores would only unite what is no track any more.
LOWEST_SCORE = 0.01


@dataclass(frozen=True)
class HitTree:
    """The unions of hits, in the order they were made; node i below N is hit i, node N + u is
    union u.

    children [M, 2]: the two nodes that it unites. score [M]: of the edge that does. hits [N]: all
    hits, depth first; those of union u are hits[first[u] : first[u] + size[u]]: first, size [M].
    meeting [M]: where in `hits` the second child's begin, another place for each union.
    """

    children: Ids
    score: Values
    hits: Ids
    first: Ids
    size: Ids
    meeting: Ids

    def parents(self) -> Ids:
        """Returns the union that each union is a child of [M], -1 where there is none."""
        parent = np.full(len(self.hits) + len(self.size), -1)
        parent[self.children] = np.arange(len(self.size))[:, None]
        return parent[len(self.hits) :]

    def take_best(self, values: Values) -> Ids:
        """Takes the disjoint unions of the largest sum of values [M]: rows of them, ascending.

        Of equal sums the larger union is taken, and none where nothing is won.
        """
        return _passes().take_best(self.children, values, len(self.hits))


def grow(graph: ScoredGraph) -> HitTree:
    """Grows the trees of a graph. Edges of equal score are taken by (destination, source); those
    below LOWEST_SCORE are not taken. Without modules no two hits exclude each other.
    """
    n_hits = graph.n_hits
    taken = np.flatnonzero(graph.scores >= LOWEST_SCORE)
    source, destination = graph.edge_index[:, taken]
    by_score = np.lexsort((destination * n_hits + source, -graph.scores[taken]))
    edges = np.stack([source[by_score], destination[by_score]])
    children, used = _passes().unite(edges, _constraints(graph), n_hits)
    first, size = _passes().lay_out(children, n_hits)
    hits = np.empty(n_hits, np.int64)
    hits[first[:n_hits]] = np.arange(n_hits)
    return HitTree(
        children=children,
        score=graph.scores[taken[by_score[used]]].astype(np.float64),
        hits=hits,
        first=first[n_hits:],
        size=size[n_hits:],
        meeting=first[children[:, 1]],
    )


def _constraints(graph: ScoredGraph) -> Constraints | None:
    if graph.modules is None:
        return None
    assert graph.modules.shape == graph.position.shape == (graph.n_hits, 3)
    return Constraints(
        np.ascontiguousarray(graph.position, np.float64),
        np.ascontiguousarray(graph.modules, np.int64),
    )


class _Passes(Protocol):
    def unite(
        self, edges: Ids, constraints: Constraints | None, n_hits: int
    ) -> tuple[Ids, Ids]: ...

    def lay_out(self, children: Ids, n_hits: int) -> tuple[Ids, Ids]: ...

    def take_best(self, children: Ids, values: Values, n_hits: int) -> Ids: ...


def _passes() -> _Passes:
    return plain if native.library() is None else native
