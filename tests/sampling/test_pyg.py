"""Comparisons with PyG's sampler, where torch-sparse is installed (bench_sampling.py --install)."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import edge_order
from bigtrk.machine import version
from bigtrk.sampling.engines import fastest, sample_bulk
from bigtrk.sampling.subgraphs import Walk, in_edges

ENGINE = fastest(torch.device("cpu"))

pytestmark = pytest.mark.skipif(
    any(version(name) is None for name in ("torch-sparse", "torch-scatter")),
    reason="PyG's sampler needs torch-scatter and torch-sparse",
)


def pyg_sample(edges: Tensor, n_nodes: int, roots: Tensor, walk: Walk) -> Any:
    """PyG's batch, with the graph's `node` [M] and `edge` [L] of each row."""
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler

    ids = {"node": torch.arange(n_nodes), "edge": torch.arange(edges.shape[1])}
    data = Data(edge_index=edges, num_nodes=n_nodes, **ids)
    options = {"node_idx": roots, "batch_size": len(roots)}
    return next(iter(ShaDowKHopSampler(data, walk.depth, walk.fanout, **options)))


def test_identical_where_the_fanout_is_every_degree() -> None:
    """The graph is directed, with repeated edges, self loops and isolated nodes."""
    n_nodes, generator = 80, torch.Generator().manual_seed(0)
    edges = torch.randint(70, (2, 300), generator=generator)
    edges = edges[:, edge_order(edges, n_nodes)]
    roots, walk = torch.randperm(n_nodes, generator=generator), Walk(depth=2, fanout=40)
    theirs = pyg_sample(edges, n_nodes, roots, walk)
    ours = sample_bulk(in_edges(edges, n_nodes), [roots.numpy()], walk, key=0, engine=ENGINE)[0]
    assert torch.equal(ours.node, theirs.node)
    assert torch.equal(ours.node_at, theirs.ptr)
    assert torch.equal(ours.node[theirs.root_n_id], ours.roots)
    assert rows_of(ours.edge, ours.edge_index) == rows_of(theirs.edge, theirs.edge_index)


def rows_of(edge: Tensor, edge_index: Tensor) -> list[tuple[int, ...]]:
    return sorted(zip(edge.tolist(), *edge_index.tolist(), strict=True))
