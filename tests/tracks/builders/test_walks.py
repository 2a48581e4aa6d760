"""Tests both walks: by hand, and against tests/oracle/walks.py."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from bigtrk.tracks.builders.builder import TrackBuilder
from bigtrk.tracks.builders.registry import Walk
from tests.oracle import walks
from tests.tracks.builders.graphs import Edge, at, groups, on_a_line

FAST = Walk(turns=False)
Oracle = Callable[[list[Edge], list[float], int], list[set[int]]]


def random_edges(draw: random.Random, n_hits: int, n_edges: int, reach: int) -> list[Edge]:
    """Draws edges between hits of near numbers, in either direction, some repeated and some loops.

    Scores are in steps, so that many are equal, and many at a limit or just above one.
    """
    steps = [0.0, 0.01, 0.02, 0.1, 0.3, 0.5, 0.6, 0.61, 0.8, 0.9, 1.0]
    ends = [
        (a, min(max(a + draw.randint(-reach, reach), 0), n_hits - 1))
        for a in draw.choices(range(n_hits), k=n_edges)
    ]
    return [(a, b, draw.choice(steps)) for a, b in [*ends, *ends[: n_edges // 10]]]


@pytest.mark.parametrize(("builder", "oracle"), [(Walk(), walks.walk), (FAST, walks.fast_walk)])
def test_tracks_are_those_of_every_path_in_full(builder: TrackBuilder, oracle: Oracle) -> None:
    lengths: set[int] = set()
    for seed in range(100):
        draw = random.Random(seed)
        n_hits = draw.randint(1, 30)
        edges = random_edges(draw, n_hits, draw.randint(0, 2 * n_hits), reach=4)
        # By their numbers, except some at equal distances and some the wrong way round.
        distance = [float(hit // 2 + draw.randint(0, 2)) for hit in range(n_hits)]
        position = np.array([[0.0, 0.0, x] for x in distance])
        for min_hits in (1, 2, 3):
            found = groups(builder(at(position, edges), min_hits))
            if min_hits == 1:  # hits without edges, which the oracle does not have
                found = [track for track in found if len(track) > 1]
            expected = [sorted(track) for track in oracle(edges, distance, min_hits)]
            assert found == [track for track in expected if len(track) > 1], seed
            lengths.update(map(len, found))
    assert max(lengths) >= 6


@pytest.mark.parametrize("builder", [Walk(), FAST])
def test_a_path_of_3000_hits_is_found(builder: TrackBuilder) -> None:
    """No recursion would come to its end."""
    draw, n_hits = random.Random(1), 5000
    edges = random_edges(draw, n_hits, 10_000, reach=8)
    edges += [(hit, hit + 1, 0.9) for hit in range(2999)]
    position = np.arange(3.0 * n_hits).reshape(-1, 3)
    found = builder(at(position, edges), 3)
    assert np.bincount(found[found >= 0]).max() >= 3000


def tracks(builder: TrackBuilder, edges: list[Edge], n_hits: int) -> list[int]:
    return [int(track) for track in builder(on_a_line(edges, n_hits), 3)]


@pytest.mark.parametrize("builder", [Walk(), FAST])
def test_chains_branches_and_cycles(builder: TrackBuilder) -> None:
    assert tracks(builder, [(0, 1, 0.02), (1, 2, 0.02)], 4) == [0, 0, 0, -1]
    start = [(0, 1, 0.9), (1, 2, 0.9), (3, 4, 0.2)]
    assert tracks(builder, [*start, (1, 3, 0.7)], 5) == [0, 0, -1, 0, 0]
    assert tracks(builder, [*start, (1, 3, 0.6)], 5) == [0, 0, 0, -1, -1]
    assert tracks(builder, [(0, 1, 0.9), (1, 2, 0.8), (2, 0, 0.7)], 3) == [0, 0, 0]
    loops = [(0, 1, 0.05), (1, 0, 0.02), (1, 2, 0.05), (1, 2, 0.05), (1, 1, 0.9)]
    assert tracks(builder, loops, 3) == [0, 0, 0]
    assert tracks(builder, [], 2) == [-1, -1]


def test_a_walk_turns_to_the_next_best_edge_and_the_fast_walk_does_not() -> None:
    edges = [(0, 2, 0.9), (2, 4, 0.9), (1, 3, 0.9), (3, 4, 0.8), (3, 5, 0.5)]
    assert tracks(Walk(), edges, 6) == [0, 1, 0, 1, 0, 1]
    assert tracks(FAST, edges, 6) == [0, -1, 0, -1, 0, -1]
