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
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from bigtrk.models.aggregation import accumulable
from bigtrk.models.chunked_layer import ChunkedLayer, EncodedEdges
from bigtrk.models.chunked_rows import ChunkedRows
from bigtrk.models.interaction_layer import InteractionLayer
from bigtrk.models.mlp import EdgeDecoder, Encoder, RowModule
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.tracing import traced


def no_exchange(owned: Tensor) -> Tensor:
    """The exchange of a whole graph, which has no halo."""
    return owned


def check_edges(edge_index: Tensor, n_nodes: int) -> None:
    """Both ends of every edge [2, E] are nodes; accelerators would read beside them, or die of it.

    Raises:
        IndexError: one is not.
    """
    # Tensors without data, of which a pass is counted (parallel/footprint.py), have no ends.
    if edge_index.numel() == 0 or isinstance(edge_index, FakeTensor):
        return
    lowest, highest = (int(end) for end in edge_index.aminmax())
    if lowest < 0 or highest >= n_nodes:
        end = lowest if lowest < 0 else highest
        raise IndexError(f"an edge ends at node {end}, outside of the {n_nodes} nodes of its graph")


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
            InteractionLayer(
                config,
                has_node_update=config.layers > distinct or i + 1 < distinct,
                name="layer" if config.shared_weights else f"layer {i}",
            )
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
        check_edges(edge_index, len(x))
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
        chunked = self.config.recompute == "chunk"
        rows = self._chunks if chunked else self._rows
        with traced("encode"):
            x = accumulable(self.node_encoder(x, self._rows))
            e = self._kept(self.edge_encoder(edge_features, rows))
        run = self._chunked(x, e) if chunked else self._whole(x, e)
        for i in range(self.config.layers):
            layer = self.layers[0 if self.config.shared_weights else i]
            last = i + 1 == self.config.layers
            with traced(f"layer {i}"):
                owned, e = layer(run, x, e, edge_index, n_owned, not last)
            if not last:
                with traced(f"layer {i} exchange"):
                    x = exchange(accumulable(owned))
        with traced("decode"):
            logits: Tensor = self.decoder(e, rows)
        return logits

    def _whole(self, x0: Tensor, e0: Tensor) -> Callable[..., tuple[Tensor | None, Tensor]]:
        """Layers all edges at once, with the encoded features that each of them reads."""
        encoded = ([x0], [e0]) if self.config.concatenate else ([], [])

        def run(
            layer: InteractionLayer, x: Tensor, e: Tensor, *inputs: Any
        ) -> tuple[Tensor | None, Tensor]:
            nodes, edges = [x, *encoded[0]], [e, *encoded[1]]
            owned, e = self._recomputed(layer.compute, nodes, edges, *inputs)
            return owned, self._kept(e)

        return run

    def _chunked(self, x0: Tensor, e0: Tensor) -> Callable[..., tuple[Tensor | None, Tensor]]:
        """Layers chunk by chunk."""
        encoded = EncodedEdges(e0.detach()) if self.config.concatenate else None

        def run(
            layer: InteractionLayer, x: Tensor, e: Tensor, *inputs: Any
        ) -> tuple[Tensor | None, Tensor]:
            nodes = (x, x0 if self.config.concatenate else None)
            result: tuple[Tensor | None, Tensor] = ChunkedLayer.apply(
                layer, encoded, *inputs, e, *nodes, *layer.parameters()
            )
            return result

        return run

    def _kept(self, e: Tensor) -> Tensor:
        """Edges as they are kept between layers, where they are most of the memory: [E, H]."""
        return e.to(torch.bfloat16) if self.config.precision == "bf16" else e

    def _rows(self, module: RowModule, values: Tensor) -> Tensor:
        rows: Tensor = self._recomputed(module.compute, values)
        return rows

    def _chunks(self, module: RowModule, values: Tensor) -> Tensor:
        dtype = next(module.parameters()).dtype
        if isinstance(module, Encoder) and self.config.precision == "bf16":
            dtype = torch.bfloat16
        result: Tensor = ChunkedRows.apply(
            module, self.config.hidden, dtype, values, *module.parameters()
        )
        return result

    def _recomputed(self, compute: Callable[..., Any], *inputs: Any) -> Any:
        if self.config.recompute != "layer" or not torch.is_grad_enabled():
            return compute(*inputs)
        # Nothing here is random, so there is no generator state to keep.
        return checkpoint(compute, *inputs, use_reentrant=False, preserve_rng_state=False)
