"""Connected components against a search by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.tracks.components import build_tracks


def by_hand(edges: list[tuple[int, int]], n_nodes: int, min_hits: int) -> list[int]:
    label = list(range(n_nodes))
    for _ in range(n_nodes):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    numbers: dict[int, int] = {}
    return [-1 if label.count(k) < min_hits else numbers.setdefault(k, len(numbers)) for k in label]


@given(
    edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12),
    min_hits=st.integers(1, 4),
)
def test_components(edges: list[tuple[int, int, bool]], min_hits: int) -> None:
    edge_index = np.array([(a, b) for a, b, _ in edges], np.int64).reshape(-1, 2).T
    scores = np.array([0.9 if kept else 0.1 for _, _, kept in edges])
    found = build_tracks(edge_index, scores, 10, min_hits=min_hits)
    assert found.dtype == np.int64
    assert found.tolist() == by_hand([(a, b) for a, b, kept in edges if kept], 10, min_hits)


def test_an_edge_at_the_cut_is_dropped_and_repeated_edges_are_not_summed() -> None:
    edge_index = np.array([[0, 0, 1], [1, 1, 2]])
    found = build_tracks(edge_index, np.array([0.5, 0.6, 0.5]), 3, score_cut=0.5, min_hits=2)
    assert found.tolist() == [0, 0, -1]


def test_many_repeated_edges_still_connect() -> None:
    edge_index = np.zeros((2, 256), np.int64)
    edge_index[1] = 1
    assert build_tracks(edge_index, np.ones(256), 2, min_hits=2).tolist() == [0, 0]


def test_no_nodes() -> None:
    assert build_tracks(np.zeros((2, 0), np.int64), np.zeros(0), 0).tolist() == []
