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

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.interaction import GraphPass
from bigtrk.models.layers.interaction_layer import EdgeDecoder, InteractionLayer
from bigtrk.models.layers.mlp import Encoder
from bigtrk.models.layers.workspace import Workspace
from bigtrk.models.protocol import check_edges
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.tracing import traced


class InteractionGNN(nn.Module):
    """Classifies edges; with a `pt_head` it also says the pT of each edge's particle.

    Every parameter gets a gradient in each step, also from an empty sector.
    """

    def __init__(
        self,
        config: InteractionGNNConfig,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool = False,
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
        self.decoder = EdgeDecoder(hidden, mlp_layers, pt_head)

    def forward(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Logits [E], float32 at least, of x [N, F], edge_features [E, G], edge_index [2, E].

        With a pT head [E, 2]: logits, and the log of the particle's pT in GeV.

        `exchange` appends to the owned rows [n_owned, H] the halo's, as their owners have them:
        [N, H]. It runs outside of what is recomputed, so the backward pass sends nothing twice.

        Raises:
            IndexError: an edge ends outside of the N nodes.
        """
        check_edges(edge_index, len(x))
        # Meta tensors have no data to move; footprint.py counts what an accelerator's host gets.
        if self.config.recompute == "offload" and not x.is_meta:
            with save_on_cpu(pin_memory=x.is_cuda):
                return self._scores(x, edge_features, edge_index, n_owned, exchange)
        return self._scores(x, edge_features, edge_index, n_owned, exchange)

    def _scores(
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
        with traced("encode"):
            x, e = self.node_encoder(x, work), self.edge_encoder(edge_features, work)
        encoded = (Encoded(x), Encoded(e)) if config.concatenate else (None, None)
        graph = GraphPass(edge_index, n_owned, work, *encoded)
        x, last = accumulable(x), config.layers - 1
        for i in range(last):
            layer = self.layers[0 if config.shared_weights else i]
            e, owned = layer(graph, i, e, x, None)
            with traced(f"layer {i} exchange"):
                x = exchange(owned)
        with traced("decode"):
            made: Tensor = self.decoder(self.layers[-1], graph, last, e, x)
        return accumulable(made)
