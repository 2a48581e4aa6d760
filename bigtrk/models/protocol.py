"""Promises that every model keeps to the engines, the halo exchange and the cost model."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def no_exchange(owned: Tensor) -> Tensor:
    """The exchange of a whole graph, which has no halo."""
    return owned


def check_edges(edge_index: Tensor, n_nodes: int) -> None:
    """Both ends of every edge [2, E] are nodes: the passes over edges rely on it.

    Raises:
        IndexError: one is not. An accelerator is not waited for; its next call fails instead.
    """
    # Meta tensors, on which a pass is counted (cost/footprint.py), have no ends.
    if edge_index.numel() == 0 or edge_index.is_meta:
        return
    if edge_index.is_cuda:
        inside = ((edge_index >= 0) & (edge_index < n_nodes)).all()
        torch._assert_async(inside, "an edge ends outside of the nodes of its graph")
        return
    lowest, highest = (int(end) for end in edge_index.aminmax())
    if lowest < 0 or highest >= n_nodes:
        end = lowest if lowest < 0 else highest
        raise IndexError(f"an edge ends at node {end}, outside of the {n_nodes} nodes of its graph")


def units(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at once where parameters are sharded: each child of `model`, and each item
    of a list of them.
    """
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else [child]
