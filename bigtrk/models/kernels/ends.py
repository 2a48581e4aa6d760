"""The check of edge ends on which all passes rely, as a torch operator: what only counts memory
and time has no ends to check.
"""

import torch
from torch import Tensor

_OPERATORS = torch.library.Library("bigtrk", "FRAGMENT")  # they last as long as it does
_OPERATORS.define("check_ends(Tensor edge_index, int n_nodes) -> ()")


def check_ends(edge_index: Tensor, n_nodes: int) -> None:
    """Whether edge_index [2, E] lies in 0 .. n_nodes - 1.

    Raises:
        IndexError: it does not. On a GPU, which is not waited for, a later call stops instead.
    """
    torch.ops.bigtrk.check_ends(edge_index, n_nodes)


def _on_cpu(edge_index: Tensor, n_nodes: int) -> None:
    if not edge_index.numel():
        return
    low, high = (int(end) for end in torch.aminmax(edge_index))
    if low < 0 or high >= n_nodes:
        raise IndexError(f"an edge ends at node {low if low < 0 else high} of {n_nodes}")


def _on_gpu(edge_index: Tensor, n_nodes: int) -> None:
    inside = ((edge_index >= 0) & (edge_index < n_nodes)).all()
    torch._assert_async(inside, "an edge ends outside of its graph")


def _without_data(edge_index: Tensor, n_nodes: int) -> None:
    """Nothing to check."""


_OPERATORS.impl("check_ends", _on_cpu, "CPU")
_OPERATORS.impl("check_ends", _on_gpu, "CUDA")
_OPERATORS.impl("check_ends", _without_data, "Meta")
