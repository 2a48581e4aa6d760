"""The engines against each other and against a plain sampler in Python."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from bigtrk.graphs.event_graph import edge_order
from bigtrk.sampling import engines
from bigtrk.sampling.engines import Products, sample_bulk
from bigtrk.sampling.subgraphs import InEdges, Sampler, Walk, epoch_key, in_edges

needs_compiler = pytest.mark.skipif(engines.library() is None, reason="no C compiler")
PRODUCTS = Products(torch.device("cpu"))
ENGINES = [
    pytest.param(engines.sample, marks=needs_compiler, id="native"),
    pytest.param(PRODUCTS, id="products"),
]
Edges = list[tuple[int, int]]


def graph_of(edges: Edges, n_nodes: int) -> InEdges:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return in_edges(index[:, edge_order(index, n_nodes)], n_nodes)


def random_graph(n_nodes: int, n_edges: int) -> InEdges:
    """Draws a graph with hubs, repeated edges, self loops and isolated nodes."""
    draw = random.Random(3)
    node = [draw.randrange(draw.randrange(1, n_nodes)) for _ in range(2 * n_edges)]
    return graph_of(list(zip(node[::2], node[1::2], strict=True)), n_nodes)


def touched(graph: InEdges, root: int, walk: Walk, draw: random.Random) -> set[int]:
    """The plain sampler: a walk that expands every step apart, as PyG's does."""
    found, frontier = {root}, [root]
    for _ in range(walk.depth):
        reached = []
        for node in frontier:
            sources = graph.source[graph.first[node] : graph.first[node + 1]].tolist()
            reached += draw.sample(sources, min(walk.fanout, len(sources)))
        found.update(reached)
        frontier = reached
    return found


def induced(graph: InEdges, nodes: set[int]) -> list[int]:
    destination = np.repeat(np.arange(graph.n_nodes), np.diff(graph.first)).tolist()
    ends = zip(graph.source.tolist(), destination, strict=True)
    return [edge for edge, (a, b) in enumerate(ends) if a in nodes and b in nodes]


edge_lists = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60)


@needs_compiler
@given(edge_lists, st.integers(1, 4), st.integers(1, 5), st.integers(0, 9))
def test_engines_give_the_same(edges: Edges, depth: int, fanout: int, seed: int) -> None:
    graph, walk, key = graph_of(edges, 10), Walk(depth, fanout), epoch_key(seed, 0)
    roots = np.random.default_rng(seed).permutation(10)
    found, expected = (engine(graph, roots, walk, key) for engine in (engines.sample, PRODUCTS))
    for name in expected._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("excess", [0, 1, 2**31 - 1000])
def test_a_fanout_of_every_degree_takes_the_whole_neighbourhood(
    engine: Sampler, excess: int
) -> None:
    graph = random_graph(40, 150)
    walk = Walk(depth=2, fanout=int(np.diff(graph.first).max()) + excess)
    batch = sample_bulk(graph, [np.arange(40)], walk, 7, engine)[0]
    for root in range(40):
        rows = slice(int(batch.node_at[root]), int(batch.node_at[root + 1]))
        nodes = touched(graph, root, walk, random.Random(0))
        assert batch.node[rows].tolist() == sorted(nodes)
        inside = (batch.edge_index[1] >= rows.start) & (batch.edge_index[1] < rows.stop)
        assert batch.edge[inside].tolist() == induced(graph, nodes)


@pytest.mark.parametrize("engine", ENGINES)
def test_subgraphs_are_induced_components_around_their_roots(engine: Sampler) -> None:
    graph, walk = random_graph(60, 400), Walk(depth=3, fanout=2)
    batch = sample_bulk(graph, [np.arange(59, -1, -1)], walk, 8, engine)[0]
    component = torch.arange(60).repeat_interleave(batch.node_at.diff())
    assert torch.equal(component[batch.node == batch.roots[component]], torch.arange(60))
    assert torch.equal(*component[batch.edge_index])
    ends = batch.node[batch.edge_index].numpy()
    edge = batch.edge.numpy()
    np.testing.assert_array_equal(graph.source[edge], ends[0])
    assert (graph.first[ends[1]] <= edge).all()
    assert (edge < graph.first[ends[1] + 1]).all()
    for i in range(60):
        nodes = batch.node[component == i].tolist()
        assert nodes == sorted(set(nodes))
        assert batch.edge[component[batch.edge_index[0]] == i].tolist() == induced(
            graph, set(nodes)
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_batches_and_batches_without_roots(engine: Sampler) -> None:
    graph, none = random_graph(20, 50), np.empty(0, np.int64)
    assert sample_bulk(graph, [], Walk(), 1, engine) == []
    assert len(sample_bulk(graph_of([], 0), [none], Walk(), 1, engine)[0].node) == 0
    first, second = sample_bulk(graph, [none, np.array([3])], Walk(), 1, engine)
    assert (len(first.node), first.edge_index.shape, first.node_at.tolist()) == (0, (2, 0), [0])
    assert 3 in second.node.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_root_s_subgraph_does_not_depend_on_what_is_sampled_with_it(engine: Sampler) -> None:
    graph, walk = random_graph(60, 400), Walk(depth=3, fanout=3)
    roots = np.random.default_rng(0).permutation(60)
    apart = [sample_bulk(graph, [roots[i : i + 1]], walk, 5, engine)[0] for i in range(60)]
    for k in (1, 4, 60):
        batches = [roots[i : i + k] for i in range(0, 60, k)]
        found = sample_bulk(graph, batches, walk, 5, engine)
        assert torch.equal(torch.cat([b.edge for b in found]), torch.cat([b.edge for b in apart]))
        for batch in found:
            nodes = [one.node for one in apart if int(one.roots) in batch.roots.tolist()]
            assert torch.equal(batch.node, torch.cat(nodes))
            assert (batch.edge_index < len(batch.node)).all()


@needs_compiler
@pytest.mark.parametrize("n_threads", [2, 7, 90])
def test_threads_change_nothing(n_threads: int) -> None:
    graph, before = random_graph(60, 400), torch.get_num_threads()
    expected = engines.sample(graph, np.arange(60), Walk(), 5)
    try:
        torch.set_num_threads(n_threads)
        found = engines.sample(graph, np.arange(60), Walk(), 5)
    finally:
        torch.set_num_threads(before)
    for name in expected._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize("engine", ENGINES)
def test_sets_of_edges_are_drawn_uniformly(engine: Sampler) -> None:
    """Every 3 of 6 edges are as likely: 20 sets. The roots are nodes with the same sources."""
    n_roots = 1000
    roots = np.arange(6, 6 + n_roots)
    graph = graph_of([(i, int(root)) for root in roots for i in range(6)], 6 + n_roots)
    batch = sample_bulk(graph, [roots], Walk(depth=1, fanout=3), epoch_key(0, 0), engine)[0]
    found = Counter(tuple(nodes[:-1].tolist()) for nodes in batch.node.reshape(n_roots, 4))
    assert len(found) == 20
    mean = n_roots / 20
    statistic = sum((count - mean) ** 2 / mean for count in found.values())
    assert chi2.sf(statistic, 19) > 1e-3
