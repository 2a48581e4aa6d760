"""An MLP that classifies each edge alone: what message passing is compared with.

Shapes: N nodes, E edges, F and G node and edge features.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.encoding import Encode
from bigtrk.models.layers.mlp import Perceptrons, activations
from bigtrk.models.layers.workspace import Workspace
from bigtrk.models.protocol import check_edges
from bigtrk.models.settings import EdgeMLPConfig
from bigtrk.tracing import traced


class EdgeMLP(nn.Module):
    """Classifies edges by their features and those of their nodes: nothing is exchanged."""

    def __init__(self, config: EdgeMLPConfig, n_node_features: int, n_edge_features: int) -> None:
        super().__init__()
        self.config = config
        n_inputs = n_edge_features + 2 * n_node_features
        self.network = EdgePerceptron(n_inputs, config.hidden, config.mlp_layers)

    def forward(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,  # noqa: ARG002  # as of the other models
        exchange: Callable[[Tensor], Tensor],  # noqa: ARG002
    ) -> Tensor:
        """Logits [E], float32 at least, of x [N, F], edge_features [E, G], edge_index [2, E].

        Raises:
            IndexError: an edge ends outside of the N nodes.
        """
        check_edges(edge_index, len(x))
        config = self.config
        dtype = torch.bfloat16 if config.precision == "bf16" else x.dtype
        work = Workspace(config.hidden, config.recompute, dtype, x.device)
        with traced("encode"):
            source, destination = edge_index
            features = [edge_features, x.index_select(0, source), x.index_select(0, destination)]
            inputs = torch.cat(features, dim=1)
        with traced("decode"):
            logits: Tensor = self.network(inputs, work)
        return accumulable(logits).squeeze(-1)


class EdgePerceptron(Perceptrons):
    """`layers` hidden layers, each normalised, and a linear one to the logit."""

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self._activations = [*activations(layers)[:-1], "norm", "linear"]
        self.add_mlp("mlp", n_inputs, hidden, layers)
        self.add_linear("output", hidden, 1)

    def forward(self, inputs: Tensor, work: Workspace) -> Tensor:
        """Inputs [E, n_inputs] -> logits [E, 1] in the workspace's type."""
        logits: Tensor = Encode.apply(work, self._activations, inputs, *self.weights())
        return logits
