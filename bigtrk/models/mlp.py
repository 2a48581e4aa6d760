"""Multilayer perceptrons as acorn makes them: LayerNorm without own parameters and ReLU between
linear layers, ReLU alone after the last one.

Shapes: N nodes, E edges, H = hidden.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from bigtrk.models.aggregation import gather


def normalised_relu(values: Tensor) -> Tensor:
    """LayerNorm, then ReLU: [M, H] -> [M, H]."""
    return F.layer_norm(values, values.shape[-1:]).relu_()


def remaining_layers(values: Tensor, linears: nn.ModuleList) -> Tensor:
    """All of an MLP after its first linear layer: [M, H] -> [M, H]; overwrites `values`."""
    for linear in linears[1:]:
        values = linear(normalised_relu(values))
    return values.relu_()


class MLP(nn.Module):
    """`layers` linear layers of width `hidden`."""

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        widths = [n_inputs, *[hidden] * layers]
        self.linears = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))

    def forward(self, values: Tensor) -> Tensor:
        """[M, n_inputs] -> [M, H]."""
        return remaining_layers(self.linears[0](values), self.linears)


class EdgeLinear(nn.Module):
    """A linear layer of [edge parts, source, destination], which are never concatenated.

    The nodes' share is computed per node and then gathered: nodes are 20 times fewer than edges,
    and the concatenation would be the widest tensor of the model. One weight holds all columns, as
    if they were concatenated.
    """

    def __init__(self, edge_parts: int, node_width: int, hidden: int) -> None:
        super().__init__()
        self._widths = [*[hidden] * edge_parts, node_width, node_width]
        bound = 1 / math.sqrt(sum(self._widths))  # as nn.Linear
        weight = torch.empty(hidden, sum(self._widths)).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-bound, bound))

    def forward(self, edges: Sequence[Tensor], nodes: Tensor, edge_index: Tensor) -> Tensor:
        """`edge_parts` tensors [E, H], nodes [N, node_width], edge_index [2, E] -> [E, H]."""
        *of_edges, of_source, of_destination = torch.split(self.weight, self._widths, dim=1)
        source, destination = edge_index
        # In place: a fresh tensor of all edges costs a CPU more than the addition.
        total = gather(F.linear(nodes, of_source, self.bias), source)
        total += gather(F.linear(nodes, of_destination), destination)
        for part, weight in zip(edges, of_edges, strict=True):
            total += F.linear(part, weight)
        return total


class EdgeMLP(nn.Module):
    """An MLP whose first linear layer reads edges and both their ends."""

    def __init__(self, edge_parts: int, node_width: int, hidden: int, layers: int) -> None:
        super().__init__()
        first = EdgeLinear(edge_parts, node_width, hidden)
        rest = [nn.Linear(hidden, hidden) for _ in range(layers - 1)]
        self.linears = nn.ModuleList([first, *rest])

    def forward(self, edges: Sequence[Tensor], nodes: Tensor, edge_index: Tensor) -> Tensor:
        """As EdgeLinear."""
        return remaining_layers(self.linears[0](edges, nodes, edge_index), self.linears)
