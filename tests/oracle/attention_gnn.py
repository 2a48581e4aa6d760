"""The attention network with dense matrices, as HEP.TrkX wrote it in 2018: the oracle.

Two matrices say which nodes edges begin and end at, so memory is nodes x edges.

Shapes: N nodes, E edges, F and G node and edge features, H = hidden, D = H + F.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from bigtrk.models.settings import AttentionGNNConfig


class Incidence(Protocol):
    """Knows which nodes edges begin and end at, in one representation."""

    def ends(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The states [N, D] of each edge's source and destination: [E, D], [E, D]."""

    def sums(self, weights: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of weights [E] x the other node's state [N, D] over incoming and over outgoing
        edges: [N, D], [N, D].
        """


class DenseIncidence:
    """Matrices [N, E] of zeros and ones, of the type of x [N, F], for edge_index [2, E]."""

    def __init__(self, edge_index: Tensor, x: Tensor) -> None:
        edges = torch.arange(edge_index.shape[1])
        self._outgoing, self._incoming = (x.new_zeros(len(x), len(edges)) for _ in range(2))
        self._outgoing[edge_index[0], edges] = 1
        self._incoming[edge_index[1], edges] = 1

    def ends(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return self._outgoing.T @ state, self._incoming.T @ state

    def sums(self, weights: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        source, destination = self.ends(state)
        return (self._incoming * weights) @ source, (self._outgoing * weights) @ destination


class ReferenceAttention(nn.Module):
    """Takes whole graphs only, makes every concatenation, and recomputes nothing."""

    def __init__(
        self,
        config: AttentionGNNConfig,
        n_node_features: int,
        n_edge_features: int,
        incidence: Callable[[Tensor, Tensor], Incidence] = DenseIncidence,
    ) -> None:
        super().__init__()
        self.config, self._incidence = config, incidence
        hidden, k = config.hidden, config.mlp_layers
        width = hidden + n_node_features
        self.input_network = self._network(n_node_features, [hidden])
        n_inputs = 2 * width + (n_edge_features if config.edge_features else 0)
        self.edge_network = self._network(n_inputs, [hidden] * (k - 1))
        self.edge_network.append(nn.Linear(hidden if k > 1 else n_inputs, 1))
        self.node_network = self._network(3 * width, [hidden] * k)

    def _network(self, n_inputs: int, widths: list[int]) -> nn.Sequential:
        modules: list[nn.Module] = []
        for width in widths:
            norm = nn.LayerNorm(width, elementwise_affine=False)
            norm_or_not = norm if self.config.layer_norm else nn.Identity()
            modules += [nn.Linear(n_inputs, width), norm_or_not, nn.Tanh()]
            n_inputs = width
        return nn.Sequential(*modules)

    def forward(self, x: Tensor, edge_features: Tensor, edge_index: Tensor) -> Tensor:
        """X [N, F], edge_features [E, G], edge_index [2, E] -> logits [E]."""
        incidence = self._incidence(edge_index, x)
        state = torch.cat([self.input_network(x), x], dim=1)
        for _ in range(self.config.layers):
            weights = torch.sigmoid(self._logits(state, edge_features, incidence))
            inputs = torch.cat([*incidence.sums(weights, state), state], dim=1)
            state = torch.cat([self.node_network(inputs), x], dim=1)
        return self._logits(state, edge_features, incidence)

    def _logits(self, state: Tensor, edge_features: Tensor, incidence: Incidence) -> Tensor:
        inputs = [*incidence.ends(state), *([edge_features] if self.config.edge_features else [])]
        logits: Tensor = self.edge_network(torch.cat(inputs, dim=1))
        return logits.squeeze(1)


def our_attention_name(name: str) -> str:
    """AttentionGNN's name of a parameter of ReferenceAttention."""
    network, position, kind = name.split(".")
    return f"{network}.mlp_{int(position) // 3}_{kind}"
