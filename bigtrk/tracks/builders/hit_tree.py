"""Trees of hits: united by edges of falling score, so that every cut's groups are in one tree.

Kruskal's algorithm: each edge in turn unites the groups of its two hits, unless no track may hold
the hits of both. Every union is a node of a binary tree and a candidate for a track; the best cut
of one track need not be that of another. The passes over a tree are in C (hit_tree.c).

Shapes: N hits, E edges, M unions (fewer than N). A node is a hit or, from N on, a union.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.native_code import NATIVE, pointers
from bigtrk.tracks.builders.builder import Code, ScoredGraph, required

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

# A particle crosses a module once, and a layer again only where its modules overlap: two hits of
# one module exclude each other, and so do two of one layer that are more than this apart. Of 84,264
# pairs of consecutive hits 13,451 lie in one layer, at most 10 mm apart, and never in one module.
REACH = 15.0  # mm


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
        best, taken = np.empty(len(values)), np.empty(len(values), np.uint8)
        counts = ctypes.c_long(len(self.hits)), ctypes.c_long(len(values))
        library().take_best(*pointers(self.children, values), *counts, *pointers(best, taken))
        return np.flatnonzero(taken)


def grow(graph: ScoredGraph) -> HitTree:
    """Grows the trees of a graph. Edges of equal score are taken by (destination, source); those
    below LOWEST_SCORE are not taken. Without modules no two hits exclude each other.
    """
    n_hits = graph.n_hits
    taken = np.flatnonzero(graph.scores >= LOWEST_SCORE)
    source, destination = graph.edge_index[:, taken]
    by_score = np.lexsort((destination * n_hits + source, -graph.scores[taken]))
    edges = np.stack([source[by_score], destination[by_score]])
    assert graph.modules is None or graph.modules.shape == graph.position.shape == (n_hits, 3)
    position = np.ascontiguousarray(graph.position, np.float64)
    modules = None if graph.modules is None else np.ascontiguousarray(graph.modules, np.int64)
    children, used = _unite(edges, position, modules, n_hits)
    first, size = _lay_out(children, n_hits)
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


# Fused multiplication would round distances otherwise on each processor.
CODE: Code = (
    "trees",
    Path(__file__).with_name("hit_tree.c"),
    (),
    (NATIVE, "-ffp-contract=off"),
)


@cache
def library() -> ctypes.CDLL:
    """Loads the compiled passes."""
    found = required(CODE)
    found.unite.restype = ctypes.c_long
    found.lay_out.restype = found.take_best.restype = None
    return found


def _unite(edges: Ids, position: Values, modules: Ids | None, n_hits: int) -> tuple[Ids, Ids]:
    """Unites hits by edges [2, E] in their order: the children [M, 2] and the edge [M] of each
    union.
    """
    # Compiled code would write to wherever they lead.
    assert edges.min(initial=0) >= 0, "edges lead to hits"
    assert edges.max(initial=-1) < n_hits, "edges lead to hits"
    most = min(edges.shape[1], max(n_hits - 1, 0))
    children, used = np.empty((most, 2), np.int64), np.empty(most, np.int64)
    scratch = np.empty((3, n_hits), np.int64)
    made = library().unite(
        *pointers(edges[0], edges[1]),
        ctypes.c_long(edges.shape[1]),
        *pointers(position),
        *([None] if modules is None else pointers(modules)),
        ctypes.c_double(REACH),
        ctypes.c_long(n_hits),
        *pointers(*scratch, children, used),
    )
    return children[:made], used[:made]


def _lay_out(children: Ids, n_hits: int) -> tuple[Ids, Ids]:
    """Orders hits so that those of each node are consecutive: first, size [N + M]."""
    first, size = np.empty((2, n_hits + len(children)), np.int64)
    counts = ctypes.c_long(n_hits), ctypes.c_long(len(children))
    library().lay_out(*pointers(children), *counts, *pointers(first, size))
    return first, size
