"""Tests components and junction removal against their definitions, and by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.tracks.builders.registry import Components, JunctionRemoval
from tests.tracks.builders.graphs import Edge, at, on_a_line


def tracks(edges: list[Edge], n_hits: int, min_hits: int = 2) -> list[int]:
    return [int(track) for track in JunctionRemoval()(on_a_line(edges, n_hits), min_hits)]


def by_hand(edges: list[tuple[int, int]], n_nodes: int, min_hits: int) -> list[int]:
    label = list(range(n_nodes))
    for _ in range(n_nodes):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    numbers: dict[int, int] = {}
    return [-1 if label.count(k) < min_hits else numbers.setdefault(k, len(numbers)) for k in label]


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.1, 0.5, 0.9])),
        max_size=12,
    ),
    min_hits=st.integers(1, 4),
)
def test_components(edges: list[Edge], min_hits: int) -> None:
    found = Components()(on_a_line(edges, 10), min_hits).tolist()
    assert found == by_hand([(a, b) for a, b, score in edges if score > 0.5], 10, min_hits)


def test_two_crossing_tracks_come_apart() -> None:
    own = [(0, 2, 0.9), (2, 4, 0.9), (1, 3, 0.8), (3, 5, 0.8)]
    assert tracks([*own, (0, 3, 0.6), (2, 5, 0.7)], 6, 3) == [0, 1, 0, 1, 0, 1]
    assert Components()(on_a_line([*own, (2, 5, 0.7)], 6), 3).tolist() == [0] * 6


def test_edges_are_directed_outward_whatever_they_say() -> None:
    """Neither 2-1 nor 1-0 is a junction, nor are the edges of a cycle of three except one."""
    assert tracks([(2, 1, 0.9), (1, 0, 0.9)], 3) == [0, 0, 0]
    assert tracks([(0, 1, 0.9), (1, 2, 0.8), (2, 0, 0.7)], 3) == [0, 0, 0]
    same_distance = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    turned = at(same_distance, [(2, 0, 0.9), (0, 1, 0.8)])
    assert JunctionRemoval()(turned, 2).tolist() == [0, -1, 0]


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
