"""Connected components against a search by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.tracks.builders.registry import Components
from tests.tracks.builders.graphs import on_a_line


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
    graph = on_a_line([(a, b, 0.9 if kept else 0.1) for a, b, kept in edges], 10)
    found = Components()(graph, min_hits)
    assert found.dtype == np.int64
    assert found.tolist() == by_hand([(a, b) for a, b, kept in edges if kept], 10, min_hits)


def test_an_edge_at_the_cut_is_dropped_and_repeated_edges_are_not_summed() -> None:
    graph = on_a_line([(0, 1, 0.5), (0, 1, 0.6), (1, 2, 0.5)], 3)
    assert Components(score_cut=0.5)(graph, 2).tolist() == [0, 0, -1]


def test_many_repeated_edges_still_connect() -> None:
    assert Components()(on_a_line([(0, 1, 1.0)] * 256, 2), 2).tolist() == [0, 0]


def test_no_hits() -> None:
    assert Components()(on_a_line([], 0), 3).tolist() == []
