"""The Interaction GNN, for a whole graph or for a sector with a halo.

Algorithm 1 of Tripathy et al., "Scaling graph neural networks for particle track reconstruction";
equal to acorn's InteractionGNN2 but for the last layer's node update, whose result is never read.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bigtrk.models.aggregation import accumulable, segment_sum
from bigtrk.models.mlp import MLP, EdgeMLP, normalised_relu
from bigtrk.models.settings import InteractionGNNConfig


def no_exchange(owned: Tensor) -> Tensor:
    """The exchange of a whole graph, which has no halo."""
    return owned


class InteractionLayer(nn.Module):
    """Updates all edges, then, where asked, the owned nodes.

    One module, so that engines that shard parameters gather a layer's at once, also when its
    forward pass is recomputed.
    """

    def __init__(self, config: InteractionGNNConfig, has_node_update: bool) -> None:
        super().__init__()
        parts = 2 if config.concatenate else 1
        sums = 2 if config.in_out else 1
        hidden, layers = config.hidden, config.mlp_layers
        self._in_out = config.in_out
        self.edge_mlp = EdgeMLP(parts, parts * hidden, hidden, layers)
        self.node_mlp = MLP((sums + parts) * hidden, hidden, layers) if has_node_update else None

    def forward(
        self,
        nodes: list[Tensor],
        edges: list[Tensor],
        edge_index: Tensor,
        n_owned: int,
        update_nodes: bool,
    ) -> tuple[Tensor | None, Tensor]:
        """Nodes x [N, H] and edges e [E, H], each followed by their encoded features if
        concatenated -> owned nodes [n_owned, H] (None without update), edges [E, H].
        """
        x = torch.cat(nodes, dim=1)
        e = self.edge_mlp(edges, x, edge_index)
        if not update_nodes:
            return None, e
        assert self.node_mlp is not None, "this layer was made without node update"
        source, destination = edge_index
        incoming = segment_sum(e, destination, len(x))[:n_owned]
        outgoing = segment_sum(e, source, len(x))[:n_owned]
        sums = [incoming, outgoing] if self._in_out else [incoming + outgoing]
        return self.node_mlp(torch.cat([*sums, x[:n_owned]], dim=1)), e


class EdgeDecoder(nn.Module):
    """From an edge's last state to its logit."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.mlp = MLP(hidden, hidden, layers)
        self.transform = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, e: Tensor) -> Tensor:
        """[E, H] -> [E]."""
        logits: Tensor = self.output(normalised_relu(self.transform(self.mlp(e)))).squeeze(-1)
        return logits


class InteractionGNN(nn.Module):
    """Classifies edges. Every parameter gets a gradient in each step, also from an empty sector."""

    def __init__(
        self, config: InteractionGNNConfig, n_node_features: int, n_edge_features: int
    ) -> None:
        super().__init__()
        self.config = config
        hidden, mlp_layers = config.hidden, config.mlp_layers
        self.node_encoder = MLP(n_node_features, hidden, mlp_layers)
        self.edge_encoder = MLP(n_edge_features, hidden, mlp_layers)
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
        """
        # Inside forward, since DeepSpeed switches an autocast around the model off.
        bf16 = self.config.precision == "bf16"
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=bf16):
            return accumulable(self._logits(x, edge_features, edge_index, n_owned, exchange))

    def _logits(
        self,
        x: Tensor,
        edge_features: Tensor,
        edge_index: Tensor,
        n_owned: int,
        exchange: Callable[[Tensor], Tensor],
    ) -> Tensor:
        x = accumulable(self._run(self.node_encoder, x))
        e = self._kept(self._run(self.edge_encoder, edge_features))
        encoded = ([x], [e]) if self.config.concatenate else ([], [])
        for i in range(self.config.layers):
            layer = self.layers[0 if self.config.shared_weights else i]
            nodes, edges = [x, *encoded[0]], [e, *encoded[1]]
            last = i + 1 == self.config.layers
            owned, e = self._run(layer, nodes, edges, edge_index, n_owned, not last)
            e = self._kept(e)
            if not last:
                x = exchange(accumulable(owned))
        logits: Tensor = self._run(self.decoder, e)
        return logits

    def _kept(self, e: Tensor) -> Tensor:
        """Edges as they are kept between layers, where they are most of the memory: [E, H]."""
        return e.to(torch.bfloat16) if self.config.precision == "bf16" else e

    def _run(self, module: nn.Module, *inputs: Any) -> Any:
        if self.config.recompute == "none" or not torch.is_grad_enabled():
            return module(*inputs)
        # Nothing here is random, so there is no generator state to keep.
        return checkpoint(module, *inputs, use_reentrant=False, preserve_rng_state=False)
