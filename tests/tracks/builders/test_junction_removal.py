"""Tests junction removal by hand, and against its definition edge by edge."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.tracks.builders.registry import Components, JunctionRemoval
from tests.tracks.builders.graphs import Edge, at, on_a_line


def tracks(edges: list[Edge], n_hits: int, min_hits: int = 2) -> list[int]:
    return [int(track) for track in JunctionRemoval()(on_a_line(edges, n_hits), min_hits)]


def test_a_chain_is_a_track_and_a_fork_keeps_its_best_way() -> None:
    assert tracks([(0, 1, 0.6), (1, 2, 0.7)], 3) == [0, 0, 0]
    assert tracks([(0, 1, 0.6), (0, 2, 0.7)], 3) == [0, -1, 0]
    assert tracks([(0, 2, 0.6), (1, 2, 0.7)], 3) == [-1, 0, 0]


def test_of_equal_scores_the_hit_with_the_lower_number_is_kept_in_any_order_of_edges() -> None:
    for edges in ([(0, 1, 0.7), (0, 2, 0.7)], [(0, 2, 0.7), (0, 1, 0.7)]):
        assert tracks(edges, 3) == [0, 0, -1]
    for edges in ([(0, 2, 0.7), (1, 2, 0.7)], [(1, 2, 0.7), (0, 2, 0.7)]):
        assert tracks(edges, 3) == [0, -1, 0]


def test_an_edge_that_loses_at_one_end_beats_others_at_the_other() -> None:
    # 1-2 loses to 0-2 at hit 2, but is the best out of hit 1, which therefore loses 1-3 too.
    assert tracks([(0, 2, 0.9), (1, 2, 0.8), (1, 3, 0.7)], 4) == [0, -1, 0, -1]


def test_two_crossing_tracks_come_apart() -> None:
    own = [(0, 2, 0.9), (2, 4, 0.9), (1, 3, 0.8), (3, 5, 0.8)]
    assert tracks([*own, (0, 3, 0.6), (2, 5, 0.7)], 6, 3) == [0, 1, 0, 1, 0, 1]
    assert Components()(on_a_line([*own, (2, 5, 0.7)], 6), 3).tolist() == [0] * 6


def test_edges_at_the_cut_do_not_count_and_hits_alone_are_short_tracks() -> None:
    assert tracks([(0, 1, 0.5)], 2) == [-1, -1]
    assert tracks([(0, 1, 0.5)], 3, min_hits=1) == [0, 1, 2]
    assert tracks([], 0) == []


def test_edges_are_directed_outward_whatever_they_say() -> None:
    """Neither 2-1 nor 1-0 is a junction, nor are the edges of a cycle of three but for one."""
    assert tracks([(2, 1, 0.9), (1, 0, 0.9)], 3) == [0, 0, 0]
    assert tracks([(0, 1, 0.9), (1, 2, 0.8), (2, 0, 0.7)], 3) == [0, 0, 0]
    same_distance = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    turned = at(same_distance, [(2, 0, 0.9), (0, 1, 0.8)])
    assert JunctionRemoval()(turned, 2).tolist() == [0, -1, 0]


def test_repeated_edges_and_those_from_a_hit_to_itself_are_no_junctions() -> None:
    assert tracks([(0, 1, 0.8), (0, 1, 0.8), (1, 0, 0.7), (0, 0, 0.9), (1, 1, 0.9)], 2) == [0, 0]


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([0.4, 0.6, 0.7, 0.8])),
        max_size=20,
    ),
    min_hits=st.integers(1, 4),
)
def test_the_definition_edge_by_edge(edges: list[Edge], min_hits: int) -> None:
    kept = [(min(a, b), max(a, b), score) for a, b, score in edges if a != b and score > 0.5]

    def rank(edge: Edge, end: int) -> tuple[float, float]:
        return (-edge[2], edge[1 - end])

    best = [
        edge
        for edge in kept
        if all(
            rank(edge, end) == min(rank(other, end) for other in kept if other[end] == edge[end])
            for end in (0, 1)
        )
    ]
    expected = Components(score_cut=0.0)(on_a_line(best, 8), min_hits)
    assert tracks(edges, 8, min_hits) == expected.tolist()
