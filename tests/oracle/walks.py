"""acorn's walks, written from their description: every path in full, hit by hit.

Edges are (one hit, other hit, score); `distance` of each hit from the origin.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

Edge = tuple[int, int, float]
Follow = Callable[[int, set[int]], list[int]]  # a hit, the hits of tracks -> the next hits

SCORE_CUT, MIN_SCORE, ADD_SCORE = 0.01, 0.1, 0.6


def walk(edges: Sequence[Edge], distance: Sequence[float], min_hits: int) -> list[set[int]]:
    """Makes tracks by connected components and walk."""
    kept = directed(edges, distance)
    tracks, rest = simple_chains(kept)

    def follow(hit: int, used: set[int]) -> list[int]:
        ways = [(score, b) for (a, b), score in rest.items() if a == hit and b not in used]
        best = max((score for score, _ in ways), default=0.0)
        if best <= MIN_SCORE:
            return []
        good = [b for score, b in ways if score > ADD_SCORE]
        return good or [min(b for score, b in ways if score == best)]

    return long_ones(tracks + walked(rest, follow, min_hits), min_hits)


def fast_walk(edges: Sequence[Edge], distance: Sequence[float], min_hits: int) -> list[set[int]]:
    """Makes tracks by the fast walkthrough, each hit in one track."""
    kept = directed(edges, distance)
    tracks, rest = simple_chains(kept)
    chosen = {edge: score for edge, score in rest.items() if score > ADD_SCORE}
    for a in {a for a, _ in rest}:
        score, b = max((score, -b) for (source, b), score in rest.items() if source == a)
        if score >= MIN_SCORE:
            chosen[a, -b] = score

    def follow(hit: int, used: set[int]) -> list[int]:
        return [b for a, b in chosen if a == hit and b not in used]

    return long_ones(tracks + walked(chosen, follow, min_hits), min_hits)


def directed(edges: Sequence[Edge], distance: Sequence[float]) -> dict[tuple[int, int], float]:
    """Finds the best score of each pair of hits, from the nearer to the farther one."""
    best: dict[tuple[int, int], float] = {}
    for *ends, score in edges:
        a, b = sorted(map(int, ends), key=lambda hit: (distance[hit], hit))
        if a != b and score > SCORE_CUT:
            best[a, b] = max(score, best.get((a, b), 0.0))
    return best


def simple_chains(
    edges: dict[tuple[int, int], float],
) -> tuple[list[set[int]], dict[tuple[int, int], float]]:
    """Returns the hits of components without a junction, and the other components' edges."""
    parts = [{a, b} for a, b in edges]
    for a, b in edges:
        joined = [part for part in parts if part & {a, b}]
        parts = [part for part in parts if not part & {a, b}] + [set().union(*joined)]
    ends = [*edges]
    chains = [
        part
        for part in parts
        if all(sum(edge[side] == hit for edge in ends) <= 1 for hit in part for side in (0, 1))
    ]
    alone = set().union(*chains)
    return chains, {edge: score for edge, score in edges.items() if edge[0] not in alone}


def walked(edges: dict[tuple[int, int], float], follow: Follow, min_hits: int) -> list[set[int]]:
    """Takes the longest path from each hit in topological order that no path has taken yet."""
    tracks: list[set[int]] = []
    used: set[int] = set()
    for start in topological(edges):
        if start in used:
            continue
        paths, ended = [[start]], []
        while paths:
            path = paths.pop()
            following = follow(path[-1], used)
            paths += [[*path, hit] for hit in following]
            if not following:
                ended.append(path)
        # Of the longest that whose first edges are better.
        longest = min(
            ended, key=lambda path: (-len(path), [(-edges[a, b], b) for a, b in pairwise(path)])
        )
        if len(longest) >= min_hits:
            tracks.append(set(longest))
            used |= set(longest)
    return tracks


def topological(edges: dict[tuple[int, int], float]) -> list[int]:
    """Orders hits in rounds: those into which no edge leads from hits that are in none before."""
    order: list[int] = []
    left = {hit for edge in edges for hit in edge}
    while left:
        entered = {b for a, b in edges if a in left}
        order += sorted(left - entered)
        left &= entered
    return order


def long_ones(tracks: list[set[int]], min_hits: int) -> list[set[int]]:
    """Sorts tracks by their first hit."""
    return sorted((track for track in tracks if len(track) >= min_hits), key=min)
