"""The graph that is sampled, and the subgraphs of many roots."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bigtrk.errors import InputError

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class InEdges:
    """The edges of a graph by the node they end at.

    Edges that end at node v are rows first[v] to first[v + 1] - 1: first [N + 1] int64. source [E]
    int32 ascends among the edges of a node.
    """

    first: Rows
    source: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        return len(self.first) - 1


def in_edges(edge_index: Tensor, n_nodes: int) -> InEdges:
    """Indexes edges [2, E] that are sorted by (destination, source), as a sector's are.

    Raises:
        InputError: there are more nodes or edges than the walks count, in 32 bits.
    """
    if max(n_nodes, edge_index.shape[1]) >= 2**31:
        raise InputError(
            f"a graph of {n_nodes:,} nodes and {edge_index.shape[1]:,} edges: subgraphs are drawn "
            f"of at most {2**31 - 1:,} of each; build it with tighter windows or a smaller radius"
        )
    destination = edge_index[1]
    assert bool((destination[1:] >= destination[:-1]).all()), "edges by destination"
    first = torch.zeros(n_nodes + 1, dtype=torch.int64)
    first[1:] = torch.bincount(destination, minlength=n_nodes).cumsum(0)
    return InEdges(first.numpy(), edge_index[0].to(torch.int32).numpy())


@dataclass(frozen=True)
class Subgraphs:
    """The subgraphs of R roots of one mini-batch, each a component of its own.

    roots [R]: nodes of the graph. node [M]: nodes of the graph, ascending within a component;
    components follow the roots, and component r is rows node_at[r] to node_at[r + 1] - 1:
    node_at [R + 1]. edge [L]: rows of the graph's edges, by component, then (destination, source);
    edge_index [2, L] holds rows of `node`. All int64.
    """

    roots: Tensor
    node: Tensor
    node_at: Tensor
    edge: Tensor
    edge_index: Tensor

    @property
    def root_row(self) -> Tensor:
        """Returns the row of each root in `node`: [R]."""
        component = torch.arange(len(self.roots)).repeat_interleave(self.node_at.diff())
        return (self.node == self.roots[component]).nonzero()[:, 0]


def first_rows(sizes: ArrayLike) -> Rows:
    """Returns where each of consecutive pieces begins, and where the last ends: [K] -> [K + 1]."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])
