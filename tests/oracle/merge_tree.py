"""Makes the merge tree as its definition says it, with sets: the oracle."""

from collections.abc import Sequence
from itertools import combinations, product
from math import dist

LOWEST_SCORE, REACH = 0.01, 15.0

Edge = tuple[int, int, float]  # source, destination, score
Node = frozenset[int]


def kruskal(
    edges: Sequence[Edge],
    position: Sequence[Sequence[float]],
    modules: Sequence[Sequence[int]] | None,
) -> list[tuple[Node, float]]:
    """Returns the hits of each union and the score of its edge, in the order they are made."""
    groups = [frozenset({hit}) for hit in range(len(position))]
    unions = []
    for source, destination, score in sorted(edges, key=lambda e: (-e[2], e[1], e[0])):
        (a,) = (group for group in groups if source in group)
        (b,) = (group for group in groups if destination in group)
        if score < LOWEST_SCORE or a == b or _exclude(a, b, position, modules):
            continue
        groups = [group for group in groups if group not in (a, b)] + [a | b]
        unions.append((a | b, score))
    return unions


def _exclude(
    a: Node, b: Node, position: Sequence[Sequence[float]], modules: Sequence[Sequence[int]] | None
) -> bool:
    if modules is None:
        return False
    return any(
        list(modules[i][:2]) == list(modules[j][:2])
        and (modules[i][2] == modules[j][2] or dist(position[i], position[j]) > REACH)
        for i, j in product(a, b)
    )


def best_value(nodes: Sequence[Node], values: Sequence[float]) -> float:
    """Finds the largest sum of values of nodes without a hit in common, over all sets of nodes."""
    numbers = range(len(nodes))
    return max(
        sum(values[i] for i in chosen)
        for k in range(len(nodes) + 1)
        for chosen in combinations(numbers, k)
        if all(not nodes[i] & nodes[j] for i, j in combinations(chosen, 2))
    )
