"""The edges of each node against a loop over edges; they are sorted once."""

import gc
from itertools import pairwise

import pytest
import torch

from bigtrk.models.edges import triton_passes
from bigtrk.models.edges.triton_passes import ORDERED, Segments, incidence_of


def listed(segments: Segments) -> list[list[int]]:
    bounds = segments.starts.tolist()
    order = segments.order.tolist()
    return [order[a:b] for a, b in pairwise(bounds)]


@pytest.mark.parametrize("n_edges", [0, 1, 50])
def test_the_edges_of_each_node_ascend(n_edges: int) -> None:
    edge_index = torch.randint(7, (2, n_edges), generator=torch.Generator().manual_seed(3))
    found = incidence_of(edge_index, 9)
    for segments, end in zip(found[:2], edge_index.tolist(), strict=True):
        expected = [[edge for edge, at in enumerate(end) if at == node] for node in range(9)]
        assert listed(segments) == expected
        assert segments.starts.dtype == segments.order.dtype == torch.int32


@pytest.mark.parametrize("n_edges", [0, 1, 50])
def test_edges_in_order_are_not_sorted(n_edges: int) -> None:
    edge_index = torch.randint(7, (2, n_edges), generator=torch.Generator().manual_seed(3))
    edge_index[1] = edge_index[1].sort().values
    told = edge_index.clone()
    ORDERED[told] = True
    found, expected = incidence_of(told, 9), incidence_of(edge_index, 9)
    assert listed(found.by_destination) == listed(expected.by_destination)
    assert torch.equal(found.turns, expected.turns)


@pytest.mark.parametrize("n_edges", [0, 1, 50])
def test_each_sum_has_its_turn_where_its_edges_are(n_edges: int) -> None:
    """A sum's place is that of the middle one of its edges; nodes without edges come last."""
    edge_index = torch.randint(7, (2, n_edges), generator=torch.Generator().manual_seed(3))
    found = incidence_of(edge_index, 9)
    middles = []
    for node in range(9):
        for end in edge_index.tolist():
            own = [edge for edge, at in enumerate(end) if at == node]
            middles.append(own[len(own) // 2] if own else n_edges)
    expected = sorted(range(18), key=lambda turn: (middles[turn], turn))
    assert found.turns.tolist() == expected
    assert found.turns.dtype == torch.int32


def test_a_sectors_edges_are_sorted_once_and_forgotten_with_it() -> None:
    edge_index = torch.randint(7, (2, 20))
    found = incidence_of(edge_index, 7)
    assert incidence_of(edge_index, 7) is found
    assert incidence_of(edge_index.clone(), 7) is not found
    assert len(incidence_of(edge_index, 8).by_source.starts) == 9
    before = len(triton_passes._KNOWN)
    del edge_index, found
    gc.collect()
    assert len(triton_passes._KNOWN) < before
