"""Multilayer perceptrons as acorn makes them: LayerNorm without own parameters and ReLU between
linear layers, ReLU alone after the last one.

Shapes: M rows, H = hidden.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

# Weight [outputs, inputs] and bias [outputs].
Linear = tuple[Tensor, Tensor]


def normalised_relu(values: Tensor) -> Tensor:
    """LayerNorm, then ReLU: [M, H] -> [M, H]."""
    return F.layer_norm(values, values.shape[-1:]).relu_()


def rest_of_mlp(values: Tensor, linears: Sequence[Linear]) -> Tensor:
    """All of an MLP after its first linear layer: [M, H] -> [M, H]; overwrites `values`."""
    for weight, bias in linears:
        values = F.linear(normalised_relu(values), weight, bias)
    return values.relu_()


class Perceptrons(nn.Module):
    """A module that holds the weights of its MLPs itself.

    Without submodules an engine that shards parameters gathers all of them at once, before
    `forward`, also where that uses them in another way than layer after layer.
    """

    def add_linear(self, name: str, n_inputs: int, n_outputs: int) -> None:
        """Weight and bias `name`, initialised as nn.Linear does."""
        bound = 1 / math.sqrt(n_inputs)
        weight = torch.empty(n_outputs, n_inputs).uniform_(-bound, bound)
        self.register_parameter(f"{name}_weight", nn.Parameter(weight))
        bias = torch.empty(n_outputs).uniform_(-bound, bound)
        self.register_parameter(f"{name}_bias", nn.Parameter(bias))

    def add_mlp(self, name: str, n_inputs: int, hidden: int, layers: int) -> None:
        """`layers` linear layers of width `hidden`: `name`_0, `name`_1 ..."""
        for k in range(layers):
            self.add_linear(f"{name}_{k}", hidden if k else n_inputs, hidden)

    def linear(self, name: str) -> Linear:
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def mlp(self, name: str, layers: int) -> list[Linear]:
        return [self.linear(f"{name}_{k}") for k in range(layers)]


class RowModule(Perceptrons):
    """A module whose rows do not depend on each other: `compute` makes them of any of them."""

    def compute(self, values: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, values: Tensor, run: Callable[..., Tensor]) -> Tensor:
        """[M, n_inputs] -> [M, ...] by `run(self, values)`, which calls `compute`."""
        return run(self, values)


class Encoder(RowModule):
    """An MLP of features: [M, n_inputs] -> [M, H]."""

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self._layers = layers
        self.add_mlp("mlp", n_inputs, hidden, layers)

    def compute(self, values: Tensor) -> Tensor:
        first, *rest = self.mlp("mlp", self._layers)
        return rest_of_mlp(F.linear(values, *first), rest)


class EdgeDecoder(RowModule):
    """From an edge's last state to its logit: [E, H] -> [E]."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self._layers = layers
        self.add_mlp("mlp", hidden, hidden, layers)
        self.add_linear("transform", hidden, hidden)
        self.add_linear("output", hidden, 1)

    def compute(self, e: Tensor) -> Tensor:
        first, *rest = self.mlp("mlp", self._layers)
        values = F.linear(rest_of_mlp(F.linear(e, *first), rest), *self.linear("transform"))
        return F.linear(normalised_relu(values), *self.linear("output")).squeeze(-1)
