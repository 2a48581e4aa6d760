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

from bigtrk.models.edges.mlp import (
    Activation,
    EdgeEncoder,
    Encoded,
    Encoder,
    Perceptrons,
    activations,
)
from bigtrk.models.edges.passes import GraphPass, Interact, Layer
from bigtrk.models.edges.plain import accumulable
from bigtrk.models.edges.states import EdgeStates
from bigtrk.models.edges.stores import EdgeStore, HostStore, MemoryStore
from bigtrk.models.edges.workspace import Recompute, Workspace
from bigtrk.models.options import Layers, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import EarlyExchange, ExchangeAll, LayerCall, LayeredModel, SectorInputs


class EdgeDecoder(Perceptrons):
    """Maps an edge's last state to its logit and, with a head for it, the log of its pT. It is
    computed with the last layer, whose edges then need not be kept.
    """

    def __init__(self, hidden: int, layers: int, pt_head: bool) -> None:
        super().__init__()
        self._pt_head = pt_head
        self.activations: list[Activation] = [*activations(layers), "norm", "linear"]
        self.add_mlp("mlp", hidden, hidden, layers)
        self.add_linear("transform", hidden, hidden)
        self.add_linear("output", hidden, 1)
        if pt_head:
            self.add_linear("pt", hidden, 1)

    def weights(self, prefix: str = "") -> list[Tensor]:
        """Joins both heads, which have the same input, into one linear layer."""
        weights = super().weights(prefix)
        if not self._pt_head:
            return weights
        *shared, weight, bias, pt_weight, pt_bias = weights
        return [*shared, torch.cat([weight, pt_weight]), torch.cat([bias, pt_bias])]

    def forward(
        self,
        layer: "InteractionLayer",
        i: int,
        graphs: list[GraphPass],
        nodes: list[Tensor],
        edges: list[Tensor],
    ) -> list[Tensor]:
        """Decodes nodes [N, H] and edges [E, H], not yet updated by `layer`, the i-th: logits [E]
        of each sector, or logits and log pT [E, 2].
        """
        made: list[Tensor] = layer(i, graphs, nodes, edges, self)[1]
        return made if self._pt_head else [logits.squeeze(-1) for logits in made]


class InteractionLayer(Perceptrons):
    """Updates all edges, then, unless it is the last layer, the owned nodes."""

    def __init__(
        self, hidden: int, layers: int, *, concatenate: bool, in_out: bool, has_node_update: bool
    ) -> None:
        super().__init__()
        parts, sums = (2 if concatenate else 1), (2 if in_out else 1)
        self.activations, self._in_out = activations(layers), in_out
        self.add_mlp("edge_mlp", 3 * parts * hidden, hidden, layers)
        if has_node_update:
            self.add_mlp("node_mlp", (sums + parts) * hidden, hidden, layers)

    def forward(
        self,
        i: int,
        graphs: list[GraphPass],
        nodes: list[Tensor],
        edges: list[Tensor],
        head: EdgeDecoder | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Runs as the i-th layer on each sector: nodes [N, H] and edges [E, H] -> owned nodes
        [n_owned, H] and edges; with a `head` no nodes, and its results for edges [E, 1 or 2].
        """
        weights = self.weights("edge_mlp")
        weights += self.weights("node_mlp") if head is None else head.weights()
        of_head = [] if head is None else head.activations
        of_nodes = self.activations if head is None else []
        updated, made = [], []
        for graph, x, e in zip(graphs, nodes, edges, strict=True):
            layer = Layer(graph, i, self.activations, of_head, of_nodes, self._in_out)
            of_edges, owned = Interact.apply(layer, e, x, *weights)
            made.append(of_edges)
            updated.append(owned)
        return ([] if head else updated), made


class InteractionGNNConfig(ModelSettings):
    """The Interaction GNN; its number of parameters and its memory follow from these."""

    has_pt_head: ClassVar[bool] = True
    keeps_edges: ClassVar[bool] = True
    has_plain_form: ClassVar[bool] = True

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

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "InteractionGNN":
        return InteractionGNN(self, n_node_features, n_edge_features, pt_head)


class InteractionGNN(LayeredModel[GraphPass]):
    """Classifies edges; with a `pt_head` it also says the pT of each edge's particle."""

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

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[GraphPass], list[Tensor], list[Tensor]]:
        """Encodes the features of nodes and edges."""
        config, x = self.config, sectors[0].x
        dtype = torch.bfloat16 if config.precision == "bf16" else x.dtype
        work = Workspace(config.hidden, config.recompute, dtype, x.device)
        away = config.offloads and x.is_cuda  # a CPU is its own host
        store = self._store or (HostStore() if away else MemoryStore())
        states = [
            EdgeStates(len(sector.edge_features), config.hidden, work, store, config.concatenate)
            for sector in sectors
        ]
        nodes = self.node_encoder([sector.x for sector in sectors], work)
        edges = self.edge_encoder([sector.edge_features for sector in sectors], states, work)
        graphs = []
        for sector, rows, of_edges in zip(sectors, nodes, states, strict=True):
            encoded = Encoded(rows) if config.concatenate else None
            graphs.append(GraphPass(sector.edge_index, sector.n_owned, work, encoded, of_edges))
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

    def decode(
        self, graphs: list[GraphPass], nodes: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        """Computes the last layer of edges and, from it, the logits [E] of each sector, float32 at
        least; with a pT head [E, 2]: logits, and the log of the particle's pT in GeV.
        """
        last = self.config.layers - 1
        made: list[Tensor] = self.decoder(self.layers[-1], last, graphs, nodes, edges)
        return [accumulable(logits) for logits in made]
