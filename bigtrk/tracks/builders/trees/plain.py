"""The passes over trees of hits in plain Python: what the compiled ones (hit_tree.c) compute.

Shapes: N hits, E edges, M unions. A node is a hit or, from N on, a union.
"""

import numpy as np

from bigtrk.tracks.builders.trees.constraints import Constraints, Ids, Values


def unite(edges: Ids, constraints: Constraints | None, n_hits: int) -> tuple[Ids, Ids]:
    """Unites hits by edges [2, E] in their order: the children [M, 2] and the edge [M] of each
    union.
    """
    group = [[hit] for hit in range(n_hits)]  # of each hit; the hits of a group share the list
    node = list(range(n_hits))  # of the group, at its first hit
    children, used = [], []
    for edge, (source, destination) in enumerate(edges.T.tolist()):
        a, b = group[source], group[destination]
        if a is b or (constraints is not None and not constraints.allow(a, b)):
            continue
        children.append((node[a[0]], node[b[0]]))
        used.append(edge)
        large, small = (a, b) if len(a) >= len(b) else (b, a)
        node[large[0]] = n_hits + len(used) - 1
        large.extend(small)
        for hit in small:
            group[hit] = large
    return np.array(children, np.int64).reshape(-1, 2), np.array(used, np.int64)


def lay_out(children: Ids, n_hits: int) -> tuple[Ids, Ids]:
    """Orders hits so that those of each node are consecutive: first, size [N + M]."""
    pairs = children.tolist()
    size = [1] * n_hits
    for left, right in pairs:
        size.append(size[left] + size[right])
    first, place = [-1] * len(size), 0
    for node in reversed(range(len(size))):
        if first[node] < 0:
            first[node], place = place, place + size[node]
        if node >= n_hits:
            left, right = pairs[node - n_hits]
            first[left], first[right] = first[node], first[node] + size[left]
    return np.array(first, np.int64), np.array(size, np.int64)


def take_best(children: Ids, values: Values, n_hits: int) -> Ids:
    """Takes the disjoint unions of the largest sum of values [M]: rows of them, ascending.

    Hits are worth nothing. Of equal sums the larger union is taken, and none where nothing is won.
    """
    pairs = children.tolist()
    best = [0.0] * n_hits
    taken = []
    for (left, right), own in zip(pairs, values.tolist(), strict=True):
        below = best[left] + best[right]
        taken.append(own > 0 and own >= below)
        best.append(own if taken[-1] else below)
    within = [False] * len(best)
    for union in reversed(range(len(pairs))):
        taken[union] = taken[union] and not within[n_hits + union]
        for child in pairs[union]:
            within[child] = taken[union] or within[n_hits + union]
    return np.flatnonzero(taken)
