"""Tests acorn's fast walkthrough by hand, where it differs from the walk and where it does not."""

from bigtrk.tracks.builders.registry import FastWalk
from tests.tracks.builders.graphs import Edge, on_a_line


def tracks(edges: list[Edge], n_hits: int, min_hits: int = 3) -> list[int]:
    return [int(track) for track in FastWalk()(on_a_line(edges, n_hits), min_hits)]


def test_a_simple_chain_is_a_track_whatever_its_scores() -> None:
    assert tracks([(0, 1, 0.02), (1, 2, 0.02)], 4) == [0, 0, 0, -1]


def test_the_best_edge_is_kept_from_0_1_on_and_others_only_above_0_6() -> None:
    assert tracks([(0, 1, 0.9), (1, 2, 0.1), (1, 3, 0.05)], 4) == [0, 0, 0, -1]
    assert tracks([(0, 1, 0.9), (1, 2, 0.09), (1, 3, 0.05)], 4) == [-1] * 4
    start = [(0, 1, 0.9), (1, 2, 0.9), (3, 4, 0.2)]
    assert tracks([*start, (1, 3, 0.7)], 5) == [0, 0, -1, 0, 0]
    assert tracks([*start, (1, 3, 0.6)], 5) == [0, 0, 0, -1, -1]


def test_a_path_ends_where_the_best_edge_leads_to_another_track() -> None:
    edges = [(0, 2, 0.9), (2, 4, 0.9), (1, 3, 0.9), (3, 4, 0.8), (3, 5, 0.5)]
    assert tracks(edges, 6) == [0, -1, 0, -1, 0, -1]
    assert tracks([*edges[:-1], (3, 5, 0.7)], 6) == [0, 1, 0, 1, 0, 1]


def test_ties() -> None:
    first = [(0, 1, 0.7), (0, 2, 0.8), (1, 3, 0.9), (2, 4, 0.7)]
    assert tracks(first, 5) == [0, -1, 0, -1, 0]
    assert tracks([(0, 2, 0.5), (0, 1, 0.5), (1, 3, 0.5), (2, 4, 0.5)], 5) == [0, 0, -1, 0, -1]


def test_a_cycle_and_nothing() -> None:
    assert tracks([(0, 1, 0.9), (1, 2, 0.8), (2, 0, 0.7)], 3) == [0, 0, 0]
    assert tracks([], 0) == []
    assert tracks([], 2) == [-1, -1]
