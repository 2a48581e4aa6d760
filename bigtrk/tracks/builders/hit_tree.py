"""A tree of hits, united by edges of falling score: it holds the groups of every score cut.

Kruskal's algorithm: each edge in turn unites the groups of its two hits, unless no track may hold
both groups. Every union is a node of a binary tree and a candidate for a track; the best score cut
of one track need not be that of another. Hits are united in C (tracks.c) or, where there is no
compiler, in Python.

Shapes: N hits, E edges, M unions (fewer than N). A node is a hit or, from N on, a union.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.native_code import pointers
from bigtrk.tracks.builders.builder import ScoredGraph, library

Ids = NDArray[np.int64]
Values = NDArray[np.float64]

# Modules overlap: of 84,264 pairs of consecutive hits of a particle 13,451 lie in one layer, 10 mm
# apart at most, and never in one module.
REACH = 15.0  # mm


def _exclude(graph: ScoredGraph, group: Sequence[int], other: Sequence[int]) -> bool:
    """True if one track cannot hold both groups of hits: they share a module, or a layer where they
    are farther apart than REACH, so no overlap of modules. False if modules are unknown.
    """
    if graph.modules is None:
        return False
    a, b = np.array(group)[:, None], np.array(other)
    of_layer = (graph.modules[a, :2] == graph.modules[b, :2]).all(axis=-1)
    of_module = of_layer & (graph.modules[a, 2] == graph.modules[b, 2])
    x, y, z = np.moveaxis(graph.position[a] - graph.position[b], -1, 0)
    apart = x * x + y * y + z * z > REACH * REACH
    return bool((of_module | (of_layer & apart)).any())


# Edges of lower scores would only make unions too mixed to be tracks.
LOWEST_SCORE = 0.01


@dataclass(frozen=True)
class HitTree:
    """The unions of hits, in the order in which they were made. Node i below N is hit i, node N + u
    is union u.

    children [M, 2]: the two nodes that a union joins. score [M]: of the edge that joins them. hits
    [N]: all hits, depth first; union u holds hits[first[u] : first[u] + size[u]]: first, size [M].
    meeting [M]: where in `hits` the second child's hits begin; it differs between all unions.
    """

    children: Ids
    score: Values
    hits: Ids
    first: Ids
    size: Ids
    meeting: Ids

    def parents(self) -> Ids:
        """Returns the parent of each union, [M]: the union that joins it to others, or -1."""
        parent = np.full(len(self.hits) + len(self.size), -1)
        parent[self.children] = np.arange(len(self.size))[:, None]
        return parent[len(self.hits) :]

    def take_best(self, values: Values) -> Ids:
        """Returns the disjoint unions with the largest sum of values [M]: their indices, ascending.

        Of equal sums, the larger union is taken; unions that add nothing are not.
        """
        best = [0.0] * len(self.hits)
        for left, right, own in zip(*self.children.T.tolist(), values.tolist(), strict=True):
            below = best[left] + best[right]
            best.append(own if own >= below else below)
        won = np.flatnonzero((values > 0) & (values == best[len(self.hits) :]))
        order = won[np.lexsort((-self.size[won], self.first[won]))]
        end = self.first[order] + self.size[order]
        # A union inside a larger one ends no later than the unions before it.
        outermost = end > np.append(0, np.maximum.accumulate(end))[:-1]
        return np.sort(order[outermost])


def grow(graph: ScoredGraph) -> HitTree:
    """Grows the tree of a graph's hits. Edges are taken by falling score, then (destination,
    source). Edges below LOWEST_SCORE are ignored. If modules are unknown, any hits may be united.
    """
    n_hits = graph.n_hits
    taken = np.flatnonzero(graph.scores >= LOWEST_SCORE)
    source, destination = graph.edge_index[:, taken]
    by_score = np.lexsort((destination * n_hits + source, -graph.scores[taken]))
    edges = np.stack([source[by_score], destination[by_score]])
    children, used = _unite(edges, graph)
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


def _unite(edges: Ids, graph: ScoredGraph) -> tuple[Ids, Ids]:
    """Unites hits by edges [2, E] in order; returns unions' children [M, 2] and edge [M]."""
    found, n_hits = library(), graph.n_hits
    if found is None:
        return _plain_unite(edges, graph)
    # Compiled code would write out of bounds.
    assert edges.min(initial=0) >= 0, "edges lead to hits"
    assert edges.max(initial=-1) < n_hits, "edges lead to hits"
    assert graph.modules is None or graph.modules.shape == graph.position.shape == (n_hits, 3)
    position = np.ascontiguousarray(graph.position, np.float64)
    modules = np.ascontiguousarray(() if graph.modules is None else graph.modules, np.int64)
    most = min(edges.shape[1], max(n_hits - 1, 0))
    children, used = np.empty((most, 2), np.int64), np.empty(most, np.int64)
    scratch = np.empty((3, n_hits), np.int64)
    made = found.unite(
        *pointers(edges[0], edges[1]),
        ctypes.c_long(edges.shape[1]),
        *pointers(position),
        *([None] if graph.modules is None else pointers(modules)),
        ctypes.c_double(REACH),
        ctypes.c_long(n_hits),
        *pointers(*scratch, children, used),
    )
    return children[:made], used[:made]


def _plain_unite(edges: Ids, graph: ScoredGraph) -> tuple[Ids, Ids]:
    group = [[hit] for hit in range(graph.n_hits)]  # hit -> its group, one list for all of its hits
    node = list(range(graph.n_hits))  # first hit of a group -> the group's node
    children, used = [], []
    for edge, (source, destination) in enumerate(edges.T.tolist()):
        a, b = group[source], group[destination]
        if a is b or _exclude(graph, a, b):
            continue
        children.append((node[a[0]], node[b[0]]))
        used.append(edge)
        large, small = (a, b) if len(a) >= len(b) else (b, a)
        node[large[0]] = graph.n_hits + len(used) - 1
        large.extend(small)
        for hit in small:
            group[hit] = large
    return np.array(children, np.int64).reshape(-1, 2), np.array(used, np.int64)


def _lay_out(children: Ids, n_hits: int) -> tuple[Ids, Ids]:
    """Orders hits so that each node's are consecutive; returns nodes' first place, size [N + M]."""
    lefts, rights = children.T.tolist()  # a list of pairs takes many times as long
    size = [1] * n_hits
    for left, right in zip(lefts, rights, strict=True):
        size.append(size[left] + size[right])
    first, place = [-1] * len(size), 0
    for node in reversed(range(len(size))):
        if first[node] < 0:
            first[node], place = place, place + size[node]
        if node >= n_hits:
            left, right = lefts[node - n_hits], rights[node - n_hits]
            first[left], first[right] = first[node], first[node] + size[left]
    return np.array(first, np.int64), np.array(size, np.int64)
