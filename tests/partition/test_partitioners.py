import itertools

import numpy as np
import pymetis
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from partition.cutting import CutSettings, computed_edges, divide
from partition.partitioners import (
    Adjacency,
    Integers,
    Method,
    adjacency,
    bisect,
    check_width,
    wedges,
)


def edges_of(pairs: list[tuple[int, int]]) -> Integers:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def grid(side: int) -> Integers:
    """A square grid, whose best cuts are known."""
    at = np.arange(side * side).reshape(side, side)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()])
    along = np.stack([at[:-1].ravel(), at[1:].ravel()])
    return np.concatenate([across, along], axis=1)


def a_graph(edge_index: Integers, **features: list[float]) -> EventGraph:
    return EventGraph(
        name="event000000001",
        node_feature_names=tuple(features),
        edge_feature_names=(),
        node_features=torch.tensor(list(features.values())).T,
        edge_index=torch.from_numpy(edge_index),
        edge_features=torch.empty(edge_index.shape[1], 0),
    )


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40))
def test_adjacency_is_the_undirected_multigraph(pairs: list[tuple[int, int]]) -> None:
    found = adjacency(edges_of(pairs), 8)
    dense = np.zeros((8, 8), dtype=np.int64)
    for source, destination in pairs:
        if source != destination:
            dense[source, destination] += 1
            dense[destination, source] += 1
    rebuilt = np.zeros_like(dense)
    for node, (start, end) in enumerate(itertools.pairwise(found.starts)):
        assert len(set(found.neighbours[start:end])) == end - start
        rebuilt[node, found.neighbours[start:end]] = found.edge_weight[start:end]
    assert rebuilt.tolist() == dense.tolist()
    ends = [end for pair in pairs for end in pair]
    assert found.node_weight.tolist() == [16 * ends.count(node) + 1 for node in range(8)]


@examples(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=60),
    st.sampled_from([1, 2, 3, 4, 8, 16]),
)
def test_metis_survives_any_graph(pairs: list[tuple[int, int]], parts: int) -> None:
    part = bisect(adjacency(edges_of(pairs), 16), parts, seed=0)
    assert part.shape == (16,)
    assert set(part) <= set(range(parts))


def test_metis_is_a_function_of_its_seed() -> None:
    graph = adjacency(grid(40), 1600)
    once, again, other = (bisect(graph, 8, seed) for seed in (5, 5, 6))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_merged_parts_are_good_parts() -> None:
    edge_index = grid(64)
    whole = bisect(adjacency(edge_index, 64 * 64), 8, seed=0)
    for merged, straight in ((8, 4 * 64), (4, 2 * 64), (2, 64)):  # cuts along the grid's lines
        part = whole * merged // 8
        computed = computed_edges(edge_index, part, merged)
        assert (part[edge_index[0]] != part[edge_index[1]]).sum() <= 1.5 * straight
        assert computed.max() / computed.mean() <= 1.03


def of_size(edges: int, weight: int) -> Adjacency:
    """A graph that claims `edges` and `weight`, and takes no memory."""
    one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
    return Adjacency(
        starts=np.broadcast_to(none, 3),
        neighbours=np.broadcast_to(none, edges),
        edge_weight=np.broadcast_to(one, edges),
        node_weight=np.array([weight - 1, 1]),
    )


def test_more_than_metis_counts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pymetis, "zero_copy_dtype", lambda: np.dtype(np.int32))
    check_width("event1", of_size(edges=2, weight=2**31 - 1))
    for graph, what in (
        (of_size(edges=2**31, weight=2), "edges .each counted twice., but the installed"),
        (of_size(edges=2, weight=2**31), "units of weight"),
    ):
        said = rf"event1: has 2,147,483,648 {what}.* 2,147,483,647;.*--method wedges.*64-bit"
        with pytest.raises(InputError, match=said):
            check_width("event1", graph)


@pytest.mark.parametrize(("nodes", "edges"), [(2**31, 1), (2, 2**31)])
def test_more_than_sectors_number_is_refused(nodes: int, edges: int) -> None:
    zeros, ends = torch.zeros(1, 1), torch.zeros(2, 1, dtype=torch.int64).expand(2, edges)
    graph = EventGraph("event1", ("r",), ("dr",), zeros.expand(nodes, 1), ends, zeros)
    with pytest.raises(InputError, match=r"event1: has .* can be cut only up to 2,147,483,647"):
        divide(graph, CutSettings(2, None, Method.METIS, seed=0))


@pytest.mark.parametrize("names", [("phi",), ("x", "y")])
def test_wedges_are_sorted_and_balanced_in_edges(names: tuple[str, ...]) -> None:
    generator = np.random.default_rng(0)
    phi = generator.uniform(-np.pi, np.pi, 900)
    dense = np.flatnonzero(phi < -2)  # edges crowd in one direction
    edge_index = generator.choice(dense, (2, 4000))
    values = {"phi": phi, "x": 30 * np.cos(phi), "y": 30 * np.sin(phi)}
    graph = a_graph(edge_index, **{name: values[name].tolist() for name in names})
    part = wedges(graph, 4)
    assert (np.diff(part[np.argsort(phi)]) >= 0).all()
    weight = 16 * np.bincount(edge_index.ravel(), minlength=900) + 1
    share = np.bincount(part, weights=weight, minlength=4)
    assert abs(share - weight.sum() / 4).max() <= weight.max()


def test_more_parts_than_nodes_and_wedges_without_an_azimuth_are_refused() -> None:
    with pytest.raises(InputError, match="4 nodes cannot be cut into 5 sectors; use --parts 4"):
        divide(a_graph(grid(2), phi=[0.0] * 4), CutSettings(5, None, Method.METIS, 0))
    with pytest.raises(InputError, match=r"needs the node feature 'phi'.*has only r, z"):
        wedges(a_graph(grid(2), r=[1.0] * 4, z=[0.0] * 4), 2)


def test_computed_edges_counts_a_cut_edge_on_both_sides() -> None:
    edge_index = edges_of([(0, 1), (1, 2), (2, 2), (2, 0), (2, 0)])
    assert computed_edges(edge_index, np.array([0, 0, 1]), 3).tolist() == [4, 4, 0]
