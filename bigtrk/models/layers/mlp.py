"""Multilayer perceptrons like acorn's: LayerNorm without parameters of its own and ReLU between
linear layers, ReLU alone after the last one.

Shapes: M rows, H = hidden.
"""

import math

import torch
from torch import Tensor, nn

from bigtrk.models.layers.chunked_mlp import Activation
from bigtrk.models.layers.edge_states import EdgeStates
from bigtrk.models.layers.encoding import Encode, EncodeEdges
from bigtrk.models.layers.workspace import Workspace


def activations(layers: int) -> list[Activation]:
    """Lists the activations after each of an MLP's linear layers."""
    between: list[Activation] = ["norm"] * (layers - 1)
    return [*between, "relu"]


class Perceptrons(nn.Module):
    """A module that holds the weights of its MLPs itself.

    Without submodules an engine that shards parameters gathers all of them at once, before
    `forward`, which does not use them layer by layer.
    """

    def add_linear(self, name: str, n_inputs: int, n_outputs: int) -> None:
        """Adds weight and bias `name`, initialised as nn.Linear does."""
        bound = 1 / math.sqrt(n_inputs)
        weight = torch.empty(n_outputs, n_inputs).uniform_(-bound, bound)
        self.register_parameter(f"{name}_weight", nn.Parameter(weight))
        bias = torch.empty(n_outputs).uniform_(-bound, bound)
        self.register_parameter(f"{name}_bias", nn.Parameter(bias))

    def add_mlp(self, name: str, n_inputs: int, hidden: int, layers: int) -> None:
        """Adds `layers` linear layers of width `hidden`: `name`_0, `name`_1 ..."""
        for k in range(layers):
            self.add_linear(f"{name}_{k}", hidden if k else n_inputs, hidden)

    def weights(self, prefix: str = "") -> list[Tensor]:
        """Returns in turn the weights and biases of the linear layers named `prefix`..."""
        return [value for name, value in self.named_parameters() if name.startswith(prefix)]


class Encoder(Perceptrons):
    """An MLP of features: of each sector [M, n_inputs] -> [M, H] in the workspace's type."""

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.activations = activations(layers)
        self.add_mlp("mlp", n_inputs, hidden, layers)

    def forward(self, features: list[Tensor], work: Workspace) -> list[Tensor]:
        weights = self.weights()
        return [Encode.apply(work, self.activations, values, *weights) for values in features]


class EdgeEncoder(Perceptrons):
    """An MLP of edges' features, which makes state 0 of each sector's states: [E, H].

    Without features (n_inputs 0) the one input of each edge is 1.
    """

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.activations = activations(layers)
        self.add_mlp("mlp", max(1, n_inputs), hidden, layers)

    def forward(
        self, features: list[Tensor], states: list[EdgeStates], work: Workspace
    ) -> list[Tensor]:
        """Maps features [E, n_inputs] of each sector to the token of its state 0."""
        weights = self.weights()
        inputs = [
            values if values.shape[1] else values.new_ones(len(values), 1) for values in features
        ]
        return [
            EncodeEdges.apply(work, self.activations, of_sector, values, *weights)
            for of_sector, values in zip(states, inputs, strict=True)
        ]


class Regressor(Perceptrons):
    """`layers` hidden layers, each normalised, and a linear one to `n_outputs` numbers."""

    def __init__(self, n_inputs: int, hidden: int, layers: int, n_outputs: int) -> None:
        super().__init__()
        self.activations = [*activations(layers)[:-1], "norm", "linear"]
        self.add_mlp("mlp", n_inputs, hidden, layers)
        self.add_linear("output", hidden, n_outputs)

    def forward(self, inputs: list[Tensor], work: Workspace) -> list[Tensor]:
        """Maps inputs [M, n_inputs] of each sector to [M, n_outputs] in the workspace's type."""
        weights = self.weights()
        return [Encode.apply(work, self.activations, rows, *weights) for rows in inputs]
