"""The Interaction GNN, for a whole graph or for a sector with a halo.

Algorithm 1 of Tripathy et al., "Scaling graph neural networks for particle track reconstruction";
equal to acorn's InteractionGNN2 but for the last layer's node update, whose result is never read.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bigtrk.models.kernels.plain import accumulable
from bigtrk.models.layers.edge_states import EdgeStates
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.graph_pass import GraphPass
from bigtrk.models.layers.interaction_layer import EdgeDecoder, InteractionLayer
from bigtrk.models.layers.mlp import EdgeEncoder, Encoder
from bigtrk.models.layers.workspace import Recompute, Workspace
from bigtrk.models.options import Layers, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import (
    EarlyExchange,
    ExchangeAll,
    LayerCall,
    LayeredModel,
    SectorInputs,
)
from bigtrk.models.stores.host import HostStore
from bigtrk.models.stores.store import EdgeStore, MemoryStore


class InteractionGNNConfig(ModelSettings):
    """The Interaction GNN; its number of parameters and its memory follow from these."""

    has_pt_head: ClassVar[bool] = True
    keeps_edges: ClassVar[bool] = True

    name: Literal["interaction"] = "interaction"
    """The Interaction GNN."""
    hidden: Width = 64
    """Width of every layer."""
    layers: Layers = 8
    """Message-passing layers."""
    mlp_layers: Linears = 2
    """Linear layers of each MLP."""
    shared_weights: bool = False
    """Use one set of weights for all layers."""
    concatenate: bool = True
    """Each layer also reads the encoded features."""
    in_out: bool = True
    """A node sums incoming and outgoing edges apart."""
    recompute: Recompute = "chunk"
    """What the backward pass computes anew from the edges between layers: `none` of the matrix
    products, `layer` a layer at once, `chunk` a layer in chunks that stay in cache; `offload` is
    `chunk` with the edges between layers in the memory of the host."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16 where that is safe; weights and sums stay float32."""

    @property
    def in_chunks(self) -> bool:
        """Says whether edges are computed in chunks that stay in cache."""
        return self.recompute != "layer"

    @property
    def overlaps(self) -> bool:
        return self.recompute != "layer"

    @property
    def spills(self) -> bool:
        return self.recompute == "chunk"

    @property
    def offloads(self) -> bool:
        return self.recompute == "offload"

    def build(
        self,
        n_node_features: int,
        n_edge_features: int,
        pt_head: bool,
    ) -> "InteractionGNN":
        return InteractionGNN(self, n_node_features, n_edge_features, pt_head)


class InteractionGNN(LayeredModel[GraphPass]):
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
        self._store: EdgeStore | None = None
        hidden, mlp_layers = config.hidden, config.mlp_layers
        self.node_encoder = Encoder(n_node_features, hidden, mlp_layers)
        self.edge_encoder = EdgeEncoder(n_edge_features, hidden, mlp_layers)
        distinct = 1 if config.shared_weights else config.layers
        self.layers = nn.ModuleList(
            InteractionLayer(
                hidden,
                mlp_layers,
                concatenate=config.concatenate,
                in_out=config.in_out,
                has_node_update=config.layers > distinct or i + 1 < distinct,
            )
            for i in range(distinct)
        )
        self.decoder = EdgeDecoder(hidden, mlp_layers, pt_head)

    def layer_calls(self) -> Sequence[LayerCall[GraphPass]]:
        """Gives all but the last layer, which is computed with the decoder."""
        last = self.config.layers - 1
        return [
            partial(self.layers[0 if self.config.shared_weights else i], i) for i in range(last)
        ]

    def keep_edges_in(self, store: EdgeStore) -> None:
        """Has the edges between layers kept in `store` from the next pass on."""
        self._store = store

    def _store_on(self, device: torch.device) -> EdgeStore:
        # A CPU is its own host.
        offloads = self.config.recompute == "offload" and device.type == "cuda"
        return HostStore() if offloads else MemoryStore()

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[GraphPass], list[Tensor], list[Tensor]]:
        """Encodes the features of nodes and edges."""
        config, x = self.config, sectors[0].x
        dtype = torch.bfloat16 if config.precision == "bf16" else x.dtype
        work = Workspace(config.hidden, config.recompute, dtype, x.device)
        store = self._store or self._store_on(x.device)
        states = [
            EdgeStates(len(sector.edge_features), config.hidden, work, store, config.concatenate)
            for sector in sectors
        ]
        nodes = self.node_encoder([sector.x for sector in sectors], work)
        edges = self.edge_encoder([sector.edge_features for sector in sectors], states, work)
        graphs = [
            GraphPass(sector.edge_index, sector.n_owned, work, self._read_again(x), of_edges)
            for sector, x, of_edges in zip(sectors, nodes, states, strict=True)
        ]
        return graphs, [accumulable(x) for x in nodes], edges

    def exchanged(
        self, graphs: list[GraphPass], owned: list[Tensor], exchange: ExchangeAll
    ) -> list[Tensor]:
        """Has halo rows come while the next layer computes the edges that do not read them."""
        if not isinstance(exchange, EarlyExchange):
            return exchange(owned)
        nodes, arrival = exchange.begin(owned)
        for graph in graphs:
            graph.halo.expect(arrival)
        return nodes

    def _read_again(self, x: Tensor) -> Encoded | None:
        return Encoded(x) if self.config.concatenate else None

    def decode(
        self, graphs: list[GraphPass], nodes: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        """Computes the last layer of edges and, from it, the logits [E] of each sector, float32 at
        least; with a pT head [E, 2]: logits, and the log of the particle's pT in GeV.
        """
        last = self.config.layers - 1
        made: list[Tensor] = self.decoder(self.layers[-1], last, graphs, nodes, edges)
        return [accumulable(logits) for logits in made]
