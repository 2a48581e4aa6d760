"""The Interaction GNN, for a whole graph or for a sector with a halo.

Algorithm 1 of Tripathy et al., "Scaling graph neural networks for particle track reconstruction".
It equals acorn's InteractionGNN2 without the last layer's node update, whose result is never read.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bigtrk.models.edges import fused
from bigtrk.models.edges.fused_pass import FusedEdgePass, FusedMLP, mlp_of, tile_of
from bigtrk.models.edges.passes import Activation, EdgePass, GraphPass, Layer
from bigtrk.models.edges.states import (
    EdgeStates,
    EdgeStore,
    Encoded,
    MemoryStore,
    Recompute,
    Workspace,
)
from bigtrk.models.edges.stores import HostStore
from bigtrk.models.options import Layers, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import (
    EarlyExchange,
    ExchangeAll,
    LayerCall,
    LayeredModel,
    SectorInputs,
    accumulable,
)


class Encode(torch.autograd.Function):
    """Applies an MLP to features, which get no gradient: [M, F] -> [M, H]. With `states` it stores
    the result as state 0 and returns the token. The weights are inputs for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        work: Workspace,
        activations: Sequence[Activation],
        states: EdgeStates | None,
        features: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        kept: list[Tensor] = []
        if states is None:
            dtype = work.sums if activations[-1] == "linear" else work.dtype
            kept.append(features.new_empty(len(features), len(weights[-1]), dtype=dtype))
            blocks = MemoryStore().blocks(len(features), [], kept)
        else:
            blocks = states.blocks(made=[states.make(0)])
        for block in blocks:
            mlp = mlp_of(weights, activations, features[block.rows], work)
            mlp.forward_all(block.made[0])
            kept += mlp.kept
        ctx.states, ctx.work, ctx.activations, ctx.weights = states, work, activations, weights
        ctx.save_for_backward(features, *kept)
        return kept[0] if states is None else states.token()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        (features, *kept), states = ctx.saved_tensors, ctx.states
        writes = len(features) and tile_of(ctx.weights, ctx.activations, ctx.work)
        make = torch.empty_like if writes else torch.zeros_like
        grads = [make(weight, dtype=ctx.work.sums) for weight in ctx.weights]
        if states is None:
            made, *kept = kept
            blocks = MemoryStore().blocks(len(features), [made], [])
        else:
            blocks = states.blocks([states.state(0), *(one.rows for one in states.gradients)])
        for block in blocks:
            made, *gradients = block.read
            mlp = mlp_of(ctx.weights, ctx.activations, features[block.rows], ctx.work, kept)
            grad_of = grad.__getitem__
            if states is not None:
                place = made if isinstance(mlp, FusedMLP) else None
                grad_of = partial(states.of_encoded, gradients, place)
            mlp.backward_all(grad_of, made, grads, adds=block.rows.start > 0)
        if states is not None:
            states.free()
        return None, None, None, None, *grads


def activations(layers: int) -> list[Activation]:
    """Returns the activation after each of an MLP's `layers` linear layers."""
    between: list[Activation] = ["norm"] * (layers - 1)
    return [*between, "relu"]


class Perceptrons(nn.Module):
    """A module that holds the weights of its MLPs itself and uses them all in one `forward`: an
    engine that shards parameters gathers them together, before `forward`.
    """

    def add_linear(self, name: str, n_inputs: int, n_outputs: int) -> None:
        """Adds parameters `name`_weight and `name`_bias, initialised as nn.Linear does."""
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
        """Returns weights and biases, in turn, of the layers whose names start with `prefix`."""
        return [value for name, value in self.named_parameters() if name.startswith(prefix)]


class Encoder(Perceptrons):
    """An MLP over features (over a 1 if there are none): [M, n_inputs] -> [M, H] for each sector,
    in the workspace's type. With `n_outputs` it normalises the last hidden layer, too, and adds a
    linear layer [M, n_outputs].
    """

    def __init__(
        self, n_inputs: int, hidden: int, layers: int, n_outputs: int | None = None
    ) -> None:
        super().__init__()
        self.activations = activations(layers)
        self.add_mlp("mlp", max(1, n_inputs), hidden, layers)
        if n_outputs is not None:
            self.activations[-1:] = ["norm", "linear"]
            self.add_linear("output", hidden, n_outputs)

    def forward(
        self, features: list[Tensor], work: Workspace, states: Sequence[EdgeStates | None] = ()
    ) -> list[Tensor]:
        """Returns the encoded rows of each sector; with `states`, stores encoded edges as state 0
        and returns its token.
        """
        weights, made = self.weights(), []
        for values, of_edges in zip(features, states or [None] * len(features), strict=True):
            inputs = values if values.shape[1] else values.new_ones(len(values), 1)
            made.append(Encode.apply(work, self.activations, of_edges, inputs, *weights))
        return made


def edge_pass(layer: Layer, hidden: int) -> type[EdgePass]:
    """Chooses the fastest class to compute a layer's edges and nodes."""
    work = layer.graph.work
    is_fused = fused.usable(work.device, work.dtype, hidden, len(layer.edge))
    return FusedEdgePass if is_fused else EdgePass


class Interact(torch.autograd.Function):
    """One layer: token of the edges' state i, nodes x [N, H] -> token of state i + 1, owned nodes
    [n_owned, H] in float32 at least. Without a node update it returns the output [E, W] of the
    edges' MLP, and None. `weights` are inputs for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        layer: Layer,
        token: Tensor,  # noqa: ARG004  # links this layer to the one before, for autograd
        x: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        encoded, work, halo = layer.graph.nodes, layer.graph.work, layer.graph.halo
        # The products read the nodes in this type; bf16 takes half of the memory.
        x = encoded.values if layer.i == 0 and encoded else halo.read(x, work.dtype)
        edges = edge_pass(layer, x.shape[1])(layer, weights, x)
        made, owned = edges.forward() if layer.node else (edges.forward_last(), None)
        ctx.layer, ctx.weights = layer, weights
        ctx.save_for_backward(x, *edges.kept)
        return made, owned

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad: Tensor, grad_owned: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        x, *kept = ctx.saved_tensors
        layer: Layer = ctx.layer
        of_pass = edge_pass(layer, x.shape[1])
        # Comes first: cuBLAS warns if its product is the first operation of a thread on a GPU.
        make = of_pass.maker(layer, ctx.weights)
        of_x = make(x, dtype=layer.graph.work.sums)
        of_weights = [make(weight, dtype=of_x.dtype) for weight in ctx.weights]
        edges = of_pass(layer, ctx.weights, x, kept)
        if grad_owned is None:
            edges.backward(grad, None, of_x, of_weights)
        else:
            outer = edges.update_backward(grad_owned, of_x, of_weights)
            edges.backward(None, outer, of_x, of_weights)
        if layer.i == 0 and layer.graph.nodes:
            encoded = layer.graph.nodes.take()
            # In chunks: a CPU makes float32 copies of both where one is bfloat16.
            for rows in layer.graph.work.chunks(len(of_x)):
                of_x[rows].add_(encoded[rows])
        return None, layer.graph.edges.token(), of_x, *of_weights


class EdgeDecoder(Perceptrons):
    """Maps an edge's last state, which is not stored, to its logit and, with `pt_head`, log pT."""

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
        """Returns weights and biases; logit and pT heads are joined into one linear layer."""
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
        """Computes layer i and decodes its edges: logits [E], or with log pT (GeV) [E, 2]."""
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
        """Computes the i-th layer on each sector: nodes [N, H], edges [E, H] -> owned nodes
        [n_owned, H], edges. With a `head` it returns no nodes, and the head's output [E, 1 or 2].
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
    """The Interaction GNN; these settings fix its number of parameters and its memory."""

    has_pt_head: ClassVar[bool] = True
    has_chunks: ClassVar[bool] = True
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
    """A node sums incoming and outgoing edges separately."""
    recompute: Recompute = "chunk"
    """Parts that the backward pass computes again from the edges between layers: `none`, a `layer`
    at once, or a layer in chunks that stay in cache (`chunk`). `offload` is `chunk` with the edges
    between layers in the memory of the host."""
    precision: Precision = "fp32"
    """`bf16` computes in bfloat16 where that is safe; weights and sums stay float32."""

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "InteractionGNN":
        return InteractionGNN(self, n_node_features, n_edge_features, pt_head)


class InteractionGNN(LayeredModel[GraphPass]):
    """Classifies edges; with a `pt_head` it also predicts the pT of each edge's particle."""

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
        self.edge_encoder = Encoder(n_edge_features, hidden, mlp_layers)
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
        """Lists all layers but the last, which is computed together with the decoder."""
        last = self.config.layers - 1
        return [
            partial(self.layers[0 if self.config.shared_weights else i], i) for i in range(last)
        ]

    def keep_edges_in(self, store: EdgeStore) -> None:
        """Makes later passes keep the states of edges between layers in `store`."""
        self._store = store

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[GraphPass], list[Tensor], list[Tensor]]:
        """Encodes the features of nodes and edges; edges are returned as tokens [E, 0]."""
        config, x = self.config, sectors[0].x
        dtype = torch.bfloat16 if config.precision == "bf16" else x.dtype
        # If an engine shards parameters, they are parts or empty before their layer runs.
        stay = all(type(one) is nn.Parameter and one.numel() for one in self.layers.parameters())
        work = Workspace(config.hidden, config.recompute, dtype, x.device)
        work.weights_stay = stay
        away = config.offloads and x.is_cuda  # a CPU is its own host
        store = self._store or (HostStore() if away else MemoryStore())
        states = [
            EdgeStates(len(sector.edge_features), config.hidden, work, store, config.concatenate)
            for sector in sectors
        ]
        nodes = self.node_encoder([sector.x for sector in sectors], work)
        edges = self.edge_encoder([sector.edge_features for sector in sectors], work, states)
        graphs = []
        for sector, rows, of_edges in zip(sectors, nodes, states, strict=True):
            encoded = Encoded(rows) if config.concatenate else None
            graphs.append(GraphPass(sector.edge_index, sector.n_owned, work, encoded, of_edges))
        return graphs, [accumulable(x) for x in nodes], edges

    def exchanged(
        self, graphs: list[GraphPass], owned: list[Tensor], exchange: ExchangeAll
    ) -> list[Tensor]:
        """Starts the exchange; the next layer waits for halo rows only where edges read them."""
        if not isinstance(exchange, EarlyExchange):
            return exchange(owned)
        nodes, arrival = exchange.begin(owned)
        for graph in graphs:
            graph.halo.expect(arrival)
        return nodes

    def decode(
        self, graphs: list[GraphPass], nodes: list[Tensor], edges: list[Tensor]
    ) -> list[Tensor]:
        """Computes the last layer and returns logits [E], or with log pT (GeV) [E, 2]."""
        last = self.config.layers - 1
        made: list[Tensor] = self.decoder(self.layers[-1], last, graphs, nodes, edges)
        return [accumulable(logits) for logits in made]
