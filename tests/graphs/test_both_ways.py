"""Edges in both directions are found, each pair once, whatever their order."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.graphs.event_graph import second_ways

EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=30)


@given(edges=EDGES, node_id=st.permutations([3, 0, 11, 7, 8]))
def test_against_a_plain_loop(edges: list[tuple[int, int, bool]], node_id: list[int]) -> None:
    there = {(node_id[a], node_id[b], y) for a, b, y in edges}
    expected = [
        node_id[a] > node_id[b] and (node_id[b], node_id[a], y) in there for a, b, y in edges
    ]
    edge_index = torch.tensor([edge[:2] for edge in edges], dtype=torch.int64).reshape(-1, 2).T
    y = torch.tensor([y for *_, y in edges], dtype=torch.bool)
    assert second_ways(edge_index, torch.tensor(node_id), y).tolist() == expected
