"""ShaDow by products on a GPU: the subgraphs of the CPU, bit for bit."""

import numpy as np
import pytest
import torch

from bigtrk.graphs.event_graph import edge_order
from bigtrk.sampling.engines import Products
from bigtrk.sampling.subgraphs import InEdges, Walk, epoch_key, in_edges

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
N_NODES = 5_000


def graph_of(n_edges: int) -> InEdges:
    """Draws repeated edges, self loops, isolated nodes, and degrees above and below the fanout."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(2, n_edges, generator=generator).square() * (N_NODES - 100)
    edges = ends.to(torch.int64)
    return in_edges(edges[:, edge_order(edges, N_NODES)], N_NODES)


@pytest.mark.parametrize("walk", [Walk(), Walk(1, 1), Walk(2, 2**31 - 1)], ids=str)
@pytest.mark.parametrize("n_edges", [0, 60_000])
@pytest.mark.parametrize("n_roots", [0, 1, 500])
def test_equals_the_cpu(walk: Walk, n_edges: int, n_roots: int) -> None:
    graph = graph_of(n_edges)
    roots = np.random.default_rng(1).permutation(N_NODES)[:n_roots]
    found, expected = (
        Products(torch.device(device))(graph, roots, walk, epoch_key(2, 0))
        for device in ("cuda", "cpu")
    )
    for name in expected._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
