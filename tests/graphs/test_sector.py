"""A graph as the only sector of itself, and the sector without nodes."""

from dataclasses import fields
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bigtrk.graphs import event_graph as sector_module
from bigtrk.graphs.event_graph import (
    EventGraph,
    ParticleTable,
    edge_order,
    empty_sector,
    is_ordered,
    whole_sector,
)

Edges = list[tuple[int, int]]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30))
def test_edges_are_ordered_by_destination_then_source(edges: Edges) -> None:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    order = edge_order(index, 9).tolist()
    expected = sorted(range(len(edges)), key=lambda e: edges[e][::-1])
    assert order == expected, "repeated edges keep their order"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12), st.integers(1, 5))
def test_order_is_told_by_blocks(edges: Edges, block: int) -> None:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    keys = [edge[::-1] for edge in edges]
    with mock.patch.object(sector_module, "AT_A_TIME", block):
        assert is_ordered(index) == (keys == sorted(keys))


def a_graph() -> EventGraph:
    return EventGraph(
        name="event1",
        node_feature_names=("r", "z"),
        edge_feature_names=("dr",),
        node_features=torch.arange(8.0).reshape(4, 2),
        edge_index=torch.tensor([[2, 0, 1, 0], [3, 1, 3, 1]]),
        edge_features=torch.tensor([[23.0], [1.0], [13.0], [2.0]]),
        y=torch.tensor([True, False, False, True]),
        hit_id=torch.tensor([5, 6, 7, 8]),
    )


def test_a_whole_graph_owns_everything() -> None:
    graph = a_graph()
    sector = whole_sector(graph)
    assert sector.edge_id.tolist() == [1, 3, 2, 0]
    assert torch.equal(sector.edge_index, graph.edge_index[:, sector.edge_id])
    assert sector.edge_features.flatten().tolist() == [1, 2, 13, 23]
    assert sector.y is not None
    assert sector.y.tolist() == [False, True, False, True]
    assert sector.node_id.tolist() == [0, 1, 2, 3]
    assert (sector.n_owned, sector.event_nodes, sector.event_edges) == (4, 4, 4)
    assert (sector.n_nodes, sector.n_edges) == (graph.n_nodes, graph.n_edges) == (4, 4)
    assert sector.owns_edge.all()
    assert (sector.send_splits, sector.recv_splits, len(sector.send_index)) == ((0,), (0,), 0)
    assert sector.hit_id is graph.hit_id
    assert sector.particle_id is None


def test_an_empty_sector_has_the_types_of_a_full_one() -> None:
    full, empty = whole_sector(a_graph()), empty_sector(("r", "z"), ("dr",))
    assert (empty.n_nodes, empty.n_edges, empty.event_edges) == (0, 0, 0)
    for field in fields(full):
        expected, found = getattr(full, field.name), getattr(empty, field.name)
        if isinstance(expected, Tensor) and found is not None:
            assert found.dtype == expected.dtype, field.name
            assert found.dim() == expected.dim(), field.name
            assert found.numel() == 0, field.name


@pytest.mark.parametrize("ids", [[], [7, 2**62 + 1, 2**62, 3]])
def test_rows_of_particles(ids: list[int]) -> None:
    rows = torch.tensor(ids, dtype=torch.int64)
    ones = torch.ones(len(ids))
    table = ParticleTable(rows, ones, ones, torch.ones(len(ids), 3), ones.long())
    asked = [2**62, 0, 7, 2**62 + 1, 2**62 + 2, 3, 7]
    expected = [ids.index(i) if i in ids else -1 for i in asked]
    assert table.rows_of(torch.tensor(asked)).tolist() == expected
