"""The edges of each node, in an order that is made once per sector.

Where sums over a node's edges run in it, no two programs of a GPU add to one place, and each sum
has one order: the bits are the same in every run.

Shapes: N nodes, E edges.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bigtrk.errors import InputError

LARGEST = 2**31 - 1  # positions of edges are int32: they are read again in every pass


class Segments(NamedTuple):
    """The edges at one end: those of node n are order[starts[n] : starts[n + 1]], ascending.

    starts [N + 1], order [E], both int32.
    """

    starts: Tensor
    order: Tensor


class Incidence(NamedTuple):
    """The edges that leave each node and those that reach it.

    turns [2 N], int32: the order in which programs sum the edges of all nodes at both ends: node
    n's at their sources as 2 n, at their destinations as 2 n + 1.
    """

    by_source: Segments
    by_destination: Segments
    turns: Tensor


_KNOWN = WeakTensorKeyDictionary()  # of the sectors' edge_index


def incidence_of(edge_index: Tensor, n_nodes: int) -> Incidence:
    """Returns the edges of each of `n_nodes` nodes; edge_index [2, E] must not change any more.

    The first call for a tensor sorts its edges.

    Raises:
        InputError: edges, or the ends of nodes, are more than int32 numbers.
    """
    known: Incidence | None = _KNOWN.get(edge_index)
    if known is None or len(known.by_source.starts) != n_nodes + 1:
        _check_size(edge_index.shape[1], n_nodes)
        source, destination = (_segments(end, n_nodes) for end in edge_index)
        known = Incidence(source, destination, _turns([source, destination]))
        _KNOWN[edge_index] = known
    return known


def _check_size(n_edges: int, n_nodes: int) -> None:
    if max(n_edges, 2 * n_nodes) > LARGEST:
        raise InputError(
            f"a sector of {n_edges:,} edges and {n_nodes:,} nodes: a GPU's sums number at "
            f"most {LARGEST:,} edges, and half as many nodes; cut its event in more sectors with "
            f"python -m partition"
        )


def _segments(end: Tensor, n_nodes: int) -> Segments:
    node, order = end.sort(stable=True)
    bounds = torch.arange(n_nodes + 1, dtype=node.dtype, device=node.device)
    starts = torch.searchsorted(node, bounds, out_int32=True)
    return Segments(starts, order.to(torch.int32))


def _turns(ends: Sequence[Segments]) -> Tensor:
    """Puts each sum where the sums of most other ends of its edges are, so that a GPU has an edge's
    row in its L2 when it reads it for the second time. The order of terms is that of Segments.
    """
    middles = torch.stack([_middle(segments) for segments in ends], dim=1)
    return middles.flatten().sort(stable=True).indices.to(torch.int32)


def _middle(segments: Segments) -> Tensor:
    """Returns the middle one of each node's edges, [N]; the number of edges where it has none."""
    starts, order = segments
    counts = starts.diff()
    padded = torch.cat([order, order.new_full((1,), len(order))])
    return padded.index_select(0, torch.where(counts > 0, starts[:-1] + counts // 2, len(order)))
