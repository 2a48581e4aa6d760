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
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.tracing import traced


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
