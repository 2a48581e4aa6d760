"""The Interaction GNN, for a whole graph or for a sector with a halo.

Algorithm 1 of Tripathy et al., "Scaling graph neural networks for particle track reconstruction";
equal to acorn's InteractionGNN2 but for the last layer's node update, whose result is never read.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu

from bigtrk.models.encoding import Encoded
from bigtrk.models.interaction import GraphPass
from bigtrk.models.interaction_layer import EdgeDecoder, InteractionLayer
from bigtrk.models.kernels.ends import check_ends
from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.mlp import Encoder
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.models.workspace import Workspace


def no_exchange(owned: Tensor) -> Tensor:
    """The exchange of a whole graph, which has no halo."""
    return owned


class InteractionGNN(nn.Module):
    """Classifies edges. Every parameter gets a gradient in each step, also from an empty sector."""

    def __init__(
        self, config: InteractionGNNConfig, n_node_features: int, n_edge_features: int
    ) -> None:
        super().__init__()
        self.config = config
        hidden, mlp_layers = config.hidden, config.mlp_layers
        self.node_encoder = Encoder(n_node_features, hidden, mlp_layers)
        self.edge_encoder = Encoder(n_edge_features, hidden, mlp_layers)
        distinct = 1 if config.shared_weights else config.layers
        self.layers = nn.ModuleList(
            InteractionLayer(config, has_node_update=config.layers > distinct or i + 1 < distinct)
            for i in range(distinct)
        )
        self.decoder = EdgeDecoder(hidden, mlp_layers)

    def forward(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Logits [E], float32 at least, of x [N, F], edge_features [E, G], edge_index [2, E].

        `exchange` appends to the owned rows [n_owned, H] the halo's, as their owners have them:
        [N, H]. It runs outside of what is recomputed, so the backward pass sends nothing twice.

        Raises:
            IndexError: an edge ends outside of the N nodes.
        """
        check_ends(edge_index, len(x))
        if self.config.recompute == "offload":
            with save_on_cpu(pin_memory=x.is_cuda):
                return self._logits(x, edge_features, edge_index, n_owned, exchange)
        return self._logits(x, edge_features, edge_index, n_owned, exchange)

    def _logits(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Callable[[Tensor], Tensor],
    ) -> Tensor:
        config = self.config
        dtype = torch.bfloat16 if config.precision == "bf16" else x.dtype
        work = Workspace(config.hidden, config.recompute, dtype, x.device)
        x, e = self.node_encoder(x, work), self.edge_encoder(edge_features, work)
        encoded = (Encoded(x), Encoded(e)) if config.concatenate else (None, None)
        graph = GraphPass(edge_index, n_owned, work, *encoded)
        x = accumulable(x)
        for i in range(config.layers - 1):
            layer = self.layers[0 if config.shared_weights else i]
            e, owned = layer(graph, i == 0, e, x, None)
            x = exchange(owned)
        logits: Tensor = self.decoder(self.layers[-1], graph, config.layers == 1, e, x)
        return accumulable(logits)
