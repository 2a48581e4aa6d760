import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, ParticleTable, Sector, whole_sector
from bigtrk.graphs.sector import group, merge
from partition.cutting import computed_edges
from partition.sectors import cut

Partition = tuple[EventGraph, Tensor, int]


def make_graph(n_nodes: int, edges: list[tuple[int, int]], *, labelled: bool = True) -> EventGraph:
    """A graph whose features tell every node and every edge apart."""
    n_edges = len(edges)
    node = torch.arange(n_nodes)
    azimuth = (node * 0.7).remainder(6.28) - 3.14
    return EventGraph(
        name="event000000007",
        node_feature_names=("r", "phi", "z"),
        edge_feature_names=("dr", "dz"),
        node_features=torch.stack([node + 0.5, azimuth, -1.0 * node], dim=1),
        edge_index=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous(),
        edge_features=torch.arange(2.0 * n_edges).reshape(n_edges, 2),
        y=torch.arange(n_edges) % 3 == 0 if labelled else None,
        hit_id=node + 100 if labelled else None,
        particle_id=(node % 4) * (2**53 + 1) if labelled else None,
        hit_weight=node.to(torch.float64) / 7 if labelled else None,
        particles=PARTICLES if labelled else None,
    )


ONES = torch.ones(3)
PARTICLES = ParticleTable(torch.arange(1, 4), ONES, ONES, torch.zeros(3, 3), ONES.long())


@st.composite
def graphs(draw: st.DrawFn) -> EventGraph:
    """Draws directed graphs with self loops, repeated edges, isolated nodes, or no edge or node."""
    n_nodes = draw(st.integers(0, 12))
    ends = st.integers(0, max(n_nodes - 1, 0))
    edges = draw(st.lists(st.tuples(ends, ends), max_size=30 if n_nodes else 0))
    return make_graph(n_nodes, edges, labelled=draw(st.booleans()))


@st.composite
def partitions(draw: st.DrawFn) -> tuple[EventGraph, Tensor, int]:
    """A graph, a part per node, and the number of parts, some of which may be empty."""
    graph = draw(graphs())
    parts = draw(st.sampled_from([1, 2, 3, 4, 8]))
    owners = st.lists(st.integers(0, parts - 1), min_size=graph.n_nodes, max_size=graph.n_nodes)
    return graph, torch.tensor(draw(owners), dtype=torch.int64), parts


def expected(graph: EventGraph, part: list[int], parts: int, k: int) -> dict[str, Any]:
    """Sector k node by node and edge by edge, straight from the definition in Sector."""
    edges = list(zip(*graph.edge_index.tolist(), strict=True))
    halos: list[list[int]] = []
    for receiver in range(parts):
        ends = {v for e in edges if receiver in (part[e[0]], part[e[1]]) for v in e}
        halos.append(sorted((v for v in ends if part[v] != receiver), key=lambda v: (part[v], v)))
    owned = [v for v in range(graph.n_nodes) if part[v] == k]
    order = sorted(range(len(edges)), key=lambda e: (edges[e][1], edges[e][0], e))
    inside = [e for e in order if {part[v] for v in edges[e]} == {k}]
    across = [
        e
        for e in order
        if len({part[v] for v in edges[e]} - {k}) == 1 and k in {part[v] for v in edges[e]}
    ]
    node_id = owned + halos[k]
    row = {v: i for i, v in enumerate(node_id)}
    sent = [[v for v in halos[receiver] if part[v] == k] for receiver in range(parts)]
    return {
        "n_owned": len(owned),
        "node_id": node_id,
        "edge_id": inside + across,
        "edge_index": [[row[edges[e][end]] for e in inside + across] for end in (0, 1)],
        "owns_edge": [part[edges[e][1]] == k for e in inside + across],
        "send_index": [row[v] for asked in sent for v in asked],
        "send_splits": tuple(len(asked) for asked in sent),
        "recv_splits": tuple(sum(part[v] == owner for v in halos[k]) for owner in range(parts)),
    }


def assert_same(one: Sector, other: Sector) -> None:
    for field in dataclasses.fields(Sector):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, Tensor):
            assert left.dtype == right.dtype, field.name
            assert left.shape == right.shape, field.name
            assert torch.equal(left, right), field.name
        elif field.name != "particles":
            assert left == right, field.name
    assert (one.particles is None) == (other.particles is None)


@settings(deadline=None)
@given(partitions())
def test_cut_follows_the_definition(partition: Partition) -> None:
    graph, part, parts = partition
    assert_cut(graph, part, parts, range(parts))


@pytest.mark.parametrize("parts", [256, 257])
def test_parts_are_told_apart_beyond_one_byte(parts: int) -> None:
    graph = make_graph(parts, [(v, (v + step) % parts) for step in (1, 100) for v in range(parts)])
    assert_cut(graph, torch.arange(parts), parts, (0, 1, parts - 1))
    ends = computed_edges(graph.edge_index.numpy(), np.arange(parts), parts)
    assert ends.tolist() == [4] * parts


def assert_cut(graph: EventGraph, part: Tensor, parts: int, checked: Iterable[int]) -> None:
    sectors = cut(graph, part, parts)
    assert len(sectors) == parts
    for k in checked:
        sector = sectors[k]
        assert (sector.part, sector.parts, sector.event) == (k, parts, graph.name)
        for name, value in expected(graph, part.tolist(), parts, k).items():
            got = getattr(sector, name)
            assert (got.tolist() if isinstance(got, Tensor) else got) == value, name


@settings(deadline=None)
@given(partitions())
def test_every_edge_is_owned_once_and_features_travel_along(partition: Partition) -> None:
    graph, _, _ = partition
    sectors = cut(*partition)
    owned = torch.cat([s.edge_id[s.owns_edge] for s in sectors])
    assert owned.sort().values.tolist() == list(range(graph.n_edges))
    for sector in sectors:
        assert torch.equal(sector.node_features, graph.node_features[sector.node_id])
        assert torch.equal(sector.edge_features, graph.edge_features[sector.edge_id])
        assert torch.equal(sector.node_id[sector.edge_index], graph.edge_index[:, sector.edge_id])
        for name in ("hit_id", "particle_id", "hit_weight"):
            whole, local = getattr(graph, name), getattr(sector, name)
            assert (local is None) if whole is None else torch.equal(local, whole[sector.node_id])


@settings(deadline=None)
@given(partitions())
def test_what_is_sent_is_what_is_received(partition: Partition) -> None:
    sectors = cut(*partition)
    for sender in sectors:
        sent = torch.split(sender.node_id[sender.send_index], list(sender.send_splits))
        for receiver in sectors:
            halo = torch.split(receiver.node_id[receiver.n_owned :], list(receiver.recv_splits))
            assert torch.equal(sent[receiver.part], halo[sender.part])


@settings(deadline=None)
@given(partitions(), st.integers(1, 8))
def test_merged_sectors_are_those_of_the_coarser_cut(partition: Partition, parts: int) -> None:
    graph, part, stored = partition
    parts = min(parts, stored)
    sectors = cut(graph, part, stored)
    assert_same(merge(sectors, 0, 1), whole_sector(graph))
    for k, coarse in enumerate(cut(graph, part * parts // stored, parts)):
        assert_same(merge([sectors[old] for old in group(k, parts, stored)], k, parts), coarse)
