"""The edges of each node, in an order that is made once per sector.

Where sums over a node's edges run in it, no two programs of a GPU add to one place, and each sum
has one order: the bits are the same in every run.

Shapes: N nodes, E edges.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

LARGEST = 2**31 - 1  # positions of edges are int32: they are read again in every pass


class Segments(NamedTuple):
    """The edges at one end: those of node n are order[starts[n] : starts[n + 1]], ascending.

    starts [N + 1], order [E], both int32.
    """

    starts: Tensor
    order: Tensor


class Incidence(NamedTuple):
    """The edges that leave each node and those that reach it."""

    by_source: Segments
    by_destination: Segments


_KNOWN = WeakTensorKeyDictionary()  # of the sectors' edge_index


def incidence_of(edge_index: Tensor, n_nodes: int) -> Incidence:
    """Returns the edges of each of `n_nodes` nodes; edge_index [2, E] must not change any more.

    The first call for a tensor sorts its edges.
    """
    known: Incidence | None = _KNOWN.get(edge_index)
    if known is None or len(known.by_source.starts) != n_nodes + 1:
        known = Incidence(*(_segments(end, n_nodes) for end in edge_index))
        _KNOWN[edge_index] = known
    return known


def _segments(end: Tensor, n_nodes: int) -> Segments:
    assert len(end) <= LARGEST, "edges are numbered in int32"
    node, order = end.sort(stable=True)
    bounds = torch.arange(n_nodes + 1, dtype=node.dtype, device=node.device)
    starts = torch.searchsorted(node, bounds, out_int32=True)
    return Segments(starts, order.to(torch.int32))
