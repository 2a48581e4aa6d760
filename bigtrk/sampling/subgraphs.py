"""The sampled graph, the random walk through it, its random draws, and subgraphs of many roots.

A draw is a hash of (seed, epoch, root, counter). The counter runs along the walk from the root:
`fanout` numbers for each step, in the walk's order. So a root's subgraph depends on no other root,
batch, rank, thread, device or engine. Its 64 bits are held in int64, which wraps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bigtrk.disk.hashing import GOLDEN, mixed, shifted

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class InEdges:
    """The edges of a graph, grouped by the node at which they end.

    Edges that end at node v are rows first[v] to first[v + 1] - 1: first [N + 1] int64. source [E]
    int32 ascends among the edges of a node.
    """

    first: Rows
    source: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        return len(self.first) - 1


def in_edges(edge_index: Tensor, n_nodes: int) -> InEdges:
    """Groups edges [2, E] by destination; they must be sorted by (destination, source)."""
    assert max(n_nodes, edge_index.shape[1]) < 2**31, "walks count in 32 bits"
    destination = edge_index[1]
    assert bool((destination[1:] >= destination[:-1]).all()), "edges by destination"
    first = torch.zeros(n_nodes + 1, dtype=torch.int64)
    first[1:] = torch.bincount(destination, minlength=n_nodes).cumsum(0)
    return InEdges(first.numpy(), edge_index[0].to(torch.int32).numpy())


@dataclass(frozen=True)
class Subgraphs:
    """The subgraphs around the R roots of one mini-batch, each a component of its own.

    roots [R]: nodes of the graph. node [M]: nodes of the graph, ascending within a component;
    components follow the roots, and component r is rows node_at[r] to node_at[r + 1] - 1: node_at
    [R + 1]. edge [L]: rows of the graph's edges, by component, then (destination, source);
    edge_index [2, L] holds rows of `node`. All int64.
    """

    roots: Tensor
    node: Tensor
    node_at: Tensor
    edge: Tensor
    edge_index: Tensor


def first_rows(sizes: ArrayLike) -> Rows:
    """Returns where each piece begins if they follow each other, then the end: [K] -> [K + 1]."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))])


@dataclass(frozen=True)
class Walk:
    """A walk: `depth` hops from a root, destination to source, at most `fanout` edges per node."""

    depth: int = 3
    fanout: int = 6


class Bulk(NamedTuple):
    """The subgraphs around R roots, one after another, all int64.

    node [M], node_at [R + 1], edge [L] as in Subgraphs; edge_at [R + 1]: the row where each root's
    edges begin, like node_at; source, destination [L]: rows of `node`.
    """

    node: Rows
    node_at: Rows
    edge: Rows
    edge_at: Rows
    source: Rows
    destination: Rows


# Samples the subgraphs of roots [R]; the last argument is the key of the epoch (epoch_key).
Sampler = Callable[[InEdges, Rows, Walk, int], Bulk]


# The seed of a run, or of an event in it.
Seed = int | tuple[int, int]


def epoch_key(seed: Seed, epoch: int) -> int:
    """Returns the 64 bits that all draws of an epoch share."""
    return int(np.random.SeedSequence(entropy(seed, epoch)).generate_state(1, np.uint64)[0])


def entropy(seed: Seed, epoch: int) -> tuple[int, ...]:
    """Returns the seed for numpy's generators in an epoch."""
    return (*seed, epoch) if isinstance(seed, tuple) else (seed, epoch)


def drawn(key: Tensor | int, counter: Tensor) -> Tensor:
    """Returns 64 random bits for each pair of key and counter (SplitMix64)."""
    return mixed(key + GOLDEN * (counter + 1))


def below(bits: Tensor, n: Tensor) -> Tensor:
    """Maps bits to integers from 0 to n - 1, n <= 2**31; their odds differ by at most n / 2**32."""
    return (shifted(bits, 32) * n) >> 32


def distinct_below(n: Tensor, size: int, key: Tensor, counter: Tensor) -> Tensor:
    """Draws `size` distinct integers below each n > size, any set as likely: [M] -> [M, size].

    Floyd's algorithm (doi:10.1145/30401.315746). counter [M]: the counter of each row's first draw.
    """
    size = size if len(n) else 0  # it may be huge where no node has more edges
    picks = n.new_empty((len(n), size))
    for k in range(size):
        last = n - size + k
        pick = below(drawn(key, counter + k), last + 1)
        taken = (picks[:, :k] == pick[:, None]).any(dim=1)
        picks[:, k] = torch.where(taken, last, pick)
    return picks
