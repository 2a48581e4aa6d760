"""The passes over E edges of N nodes in Triton; float32 and bfloat16 on GPUs. One program sums a
node's edges, in an order fixed once per sector: the bits are the same in every run.
"""

from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bigtrk.console import warn_once
from bigtrk.machine import slow_cards, takes_plain_passes, triton_lacks
from bigtrk.models.edges import plain, work
from bigtrk.models.edges.schedule import SUM_WARPS, summed_columns
from bigtrk.models.protocol import Ends


class Segments(NamedTuple):
    """The edges by their node at one end: node n has order[starts[n] : starts[n + 1]], ascending.

    starts [N + 1], order [E], both int32, since every pass reads them again.
    """

    starts: Tensor
    order: Tensor


class Incidence(NamedTuple):
    """The edges that leave each node and the edges that reach it.

    turns [2 N], int32: the order in which programs sum the edges of all nodes at both ends. 2 n
    stands for edges whose source is node n, 2 n + 1 for edges whose destination it is.
    """

    by_source: Segments
    by_destination: Segments
    turns: Tensor


_KNOWN = WeakTensorKeyDictionary()  # edge_index -> Incidence


def incidence_of(edge_index: Tensor, n_nodes: int) -> Incidence:
    """Returns the edges of each node, sorted once per tensor; edge_index [2, E] must not change."""
    known: Incidence | None = _KNOWN.get(edge_index)
    if known is None or len(known.by_source.starts) != n_nodes + 1:
        assert max(edge_index.shape[1], 2 * n_nodes) < 2**31, "cut the event in more sectors"
        device, n_edges = edge_index.device, edge_index.shape[1]
        bounds = torch.arange(n_nodes + 1, dtype=edge_index.dtype, device=device)
        starts, order = _rows(n_nodes + 1, device), _rows(n_edges + 1, device)  # one past the end
        for k, node in enumerate(edge_index):
            if k and edge_index in ORDERED:
                torch.arange(n_edges + 1, out=order[k])
            else:
                node, indices = node.sort(stable=True)
                order[k, :-1] = indices
                order[k, -1].fill_(n_edges)
            torch.searchsorted(node, bounds, out_int32=True, out=starts[k])
        source, destination = map(Segments, starts, order[:, :-1])
        known = Incidence(source, destination, _turns(starts, order))
        _KNOWN[edge_index] = known
    return known


ORDERED = WeakTensorKeyDictionary()  # edge_index whose destinations ascend: they are not sorted


def _rows(width: int, device: torch.device) -> Tensor:
    """Allocates int32 [2, width] with both rows aligned, else kernels would be compiled again."""
    return torch.empty(2, -(-width // 4) * 4, dtype=torch.int32, device=device)[:, :width]


def _turns(starts: Tensor, order: Tensor) -> Tensor:
    """Orders nodes' sums so that sums which read the same edges run close together: a GPU then
    finds an edge's row in its L2 when it reads it again. Terms keep the order of Segments.
    """
    counts, places = starts.t().diff(dim=0), starts.t()[:-1].long()
    # The middle one of each node's edges; a node without edges comes last.
    places += counts // 2
    places.masked_fill_(counts == 0, order.shape[1] - 1)
    middles = order.t().gather(0, places).flatten()
    return middles.sort(stable=True).indices.to(torch.int32)


TYPES = torch.float32, torch.bfloat16

# These run in torch: it has kernels for them, or fused passes rarely call them.
multiply, add_product, add_sum = plain.multiply, plain.add_product, plain.add_sum
norm_relu, norm_relu_backward = plain.norm_relu, plain.norm_relu_backward
relu_backward = plain.relu_backward


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these kernels compute rows of `dtype` on `device`."""
    return device.type == "cuda" and dtype in TYPES and _installed() and not _is_plain(device)


@cache
def _is_plain(device: torch.device) -> bool:
    """Whether a GPU is too old, or not NVIDIA's; the first call prints the consequence."""
    plain_passes = takes_plain_passes(device)
    if plain_passes:
        warn_once("capability", slow_cards() or "")
    return plain_passes


@cache
def _installed() -> bool:
    """Whether Triton is installed and can compile; the first call prints what it lacks."""
    lacks = triton_lacks() if find_spec("triton") else None
    if lacks:
        warn_once("Triton", f"GPUs compute more slowly: Triton {lacks}")
    return lacks == ""


def add_to_nodes(values: Tensor, ends: Ends) -> None:
    sum_at_ends(values, ends, adds=True)


def sum_at_ends(values: Tensor, sums: Ends, adds: bool) -> None:
    """Sums edges [M, H] at their sources and at their destinations; writes both sums [N, H] to
    `sums` or, with `adds`, adds to them in float32.
    """
    n_nodes, hidden = sums.of_source.shape
    incidence, width = incidence_of(sums.edge_index, n_nodes), summed_columns(hidden, values.dtype)
    segments = incidence.by_source[:], incidence.by_destination[:], incidence.turns
    work.launch(
        ("kernels", "sum_at_ends"),
        (2 * n_nodes, -(-hidden // width)),
        values,
        0.0,
        *(values, *segments, sums[:2], sums.first, len(values)),
        adds=adds,
        hidden=hidden,
        width=width,
        num_warps=SUM_WARPS,
    )
