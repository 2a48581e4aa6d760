"""Tests acorn's walk by hand."""

from bigtrk.tracks.builders.registry import Walk
from tests.tracks.builders.graphs import Edge, on_a_line


def tracks(edges: list[Edge], n_hits: int, min_hits: int = 3) -> list[int]:
    return [int(track) for track in Walk()(on_a_line(edges, n_hits), min_hits)]


def test_a_simple_chain_is_a_track_whatever_its_scores() -> None:
    assert tracks([(0, 1, 0.02), (1, 2, 0.02)], 4) == [0, 0, 0, -1]
    assert tracks([(0, 1, 0.9)], 2) == [-1, -1]
    assert tracks([(0, 1, 0.9), (1, 2, 0.01)], 3) == [-1, -1, -1]


def test_the_best_edge_is_followed_and_others_only_above_0_6() -> None:
    start = [(0, 1, 0.9), (1, 2, 0.9), (3, 4, 0.2)]
    assert tracks([*start, (1, 3, 0.7)], 5) == [0, 0, -1, 0, 0]
    assert tracks([*start, (1, 3, 0.6)], 5) == [0, 0, 0, -1, -1]
    assert tracks([*start, (1, 3, 0.95)], 5) == [0, 0, -1, 0, 0]


def test_an_edge_of_0_1_ends_a_path() -> None:
    assert tracks([(0, 1, 0.9), (1, 2, 0.1), (1, 3, 0.05)], 4, min_hits=2) == [0, 0, -1, -1]
    assert tracks([(0, 1, 0.9), (1, 2, 0.11), (1, 3, 0.05)], 4, min_hits=2) == [0, 0, 0, -1]


def test_a_hit_of_another_track_is_passed_over_for_the_next_best() -> None:
    edges = [(0, 2, 0.9), (2, 4, 0.9), (1, 3, 0.9), (3, 4, 0.8), (3, 5, 0.5)]
    assert tracks(edges, 6) == [0, 1, 0, 1, 0, 1]


def test_of_equally_long_paths_the_one_with_the_better_first_edge() -> None:
    edges = [(0, 1, 0.7), (0, 2, 0.8), (1, 3, 0.9), (2, 4, 0.7)]
    assert tracks(edges, 5) == [0, -1, 0, -1, 0]
    assert tracks(edges, 5, min_hits=2) == [0, 1, 0, 1, 0]


def test_of_equal_scores_the_hit_with_the_lower_number() -> None:
    edges = [(0, 2, 0.8), (0, 1, 0.8), (1, 3, 0.7), (2, 4, 0.9)]
    assert tracks(edges, 5) == [0, 0, -1, 0, -1]


def test_hits_without_edges_into_them_start_first() -> None:
    # Hit 2 is nearer than hit 3, but has an edge into it.
    edges = [(0, 1, 0.9), (0, 2, 0.5), (2, 4, 0.8), (3, 4, 0.9)]
    assert tracks(edges, 5, min_hits=2) == [0, 0, -1, 1, 1]


def test_a_cycle_is_directed_outward() -> None:
    assert tracks([(0, 1, 0.9), (1, 2, 0.8), (2, 0, 0.7)], 3) == [0, 0, 0]
    assert tracks([(2, 1, 0.9), (1, 0, 0.9)], 3) == [0, 0, 0]


def test_repeated_edges_and_loops_leave_a_chain_simple() -> None:
    chain = [(0, 1, 0.05), (1, 0, 0.02), (1, 2, 0.05), (1, 2, 0.05), (1, 1, 0.9)]
    assert tracks(chain, 3) == [0, 0, 0]


def test_no_hits_no_edges_and_hits_alone() -> None:
    assert tracks([], 0) == []
    assert tracks([], 2) == [-1, -1]
    assert tracks([(0, 1, 0.9), (0, 2, 0.5)], 4, min_hits=1) == [0, 0, 1, 2]
