"""Several mini-batches sampled at once, by the engine that is fastest on this machine."""

from collections.abc import Sequence

import numpy as np
import torch

from bigtrk.sampling import native
from bigtrk.sampling.products import Products
from bigtrk.sampling.subgraphs import InEdges, Rows, Subgraphs, first_rows
from bigtrk.sampling.walk import Bulk, Sampler, Walk


def fastest(device: torch.device) -> Sampler:
    """Chooses products on a GPU, and on a CPU the compiled engine (docs/results/sampling.json), if
    there is a C compiler.
    """
    if device.type == "cpu" and native.library() is not None:
        return native.sample
    return Products(device)


def sample_bulk(
    graph: InEdges, batches: Sequence[Rows], walk: Walk, key: int, engine: Sampler
) -> list[Subgraphs]:
    """Samples the subgraphs of each of `batches`, lists of roots, independently of each other."""
    begin = first_rows([len(roots) for roots in batches])
    roots = np.concatenate([np.empty(0, np.int64), *batches])
    assert not len(roots) or 0 <= roots.min() <= roots.max() < graph.n_nodes, "roots are nodes"
    bulk = engine(graph, roots, walk, key)
    return [_piece(bulk, roots, begin[i], begin[i + 1]) for i in range(len(batches))]


def _piece(bulk: Bulk, roots: Rows, begin: int, end: int) -> Subgraphs:
    nodes = slice(bulk.node_at[begin], bulk.node_at[end])
    edges = slice(bulk.edge_at[begin], bulk.edge_at[end])
    ends = np.empty((2, edges.stop - edges.start), np.int64)
    np.subtract(bulk.source[edges], nodes.start, out=ends[0])
    np.subtract(bulk.destination[edges], nodes.start, out=ends[1])
    return Subgraphs(
        roots=torch.from_numpy(roots[begin:end]),
        node=torch.from_numpy(bulk.node[nodes]),
        node_at=torch.from_numpy(bulk.node_at[begin : end + 1] - nodes.start),
        edge=torch.from_numpy(bulk.edge[edges]),
        edge_index=torch.from_numpy(ends),
    )
