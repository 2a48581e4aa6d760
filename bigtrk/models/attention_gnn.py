"""The attention network of HEP.TrkX, for a whole graph or for a sector with a halo.

Farrell et al., "Novel deep learning methods for track reconstruction" (2018), there with dense
matrices (attention_reference.py). In each layer an edge network weighs each edge by the states of
its nodes; then a node network reads the weighted sums over a node's neighbours. Each state is
joined with the input features; optionally the edge network also reads the edges' features. After
the last layer the edge network gives the logits.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, F and G node and
edge features, H = hidden, D = H + F the width of a state with the input features.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import layer_norm, linear

from bigtrk.models.edges.states import passes_for
from bigtrk.models.interaction_gnn import Perceptrons
from bigtrk.models.options import Layers, Linears, ModelSettings, Precision, Width
from bigtrk.models.protocol import Ends, LayerCall, LayeredModel, SectorInputs, accumulable
from bigtrk.process import silence_sparse_warnings
from bigtrk.tracing import traced

silence_sparse_warnings()


class _Rows:
    """A sparse matrix [N, N] with an entry per edge: one end is its row, the other its column."""

    def __init__(self, row: Tensor, column: Tensor, n_nodes: int) -> None:
        self.order = torch.argsort(row, stable=True)
        counts = torch.zeros(n_nodes + 1, dtype=row.dtype, device=row.device)
        counts.index_add_(0, row + 1, torch.ones_like(row))
        self._starts, self._columns, self._size = counts.cumsum(0), column[self.order], n_nodes

    def matrix(self, weights: Tensor) -> Tensor:
        """Returns the sparse matrix whose entries are `weights` [E]."""
        return torch.sparse_csr_tensor(
            self._starts,
            self._columns,
            weights[self.order],
            (self._size, self._size),
            check_invariants=False,
        )


class Neighbours:
    """A sector's nodes and edges; sorts the edges by an end when sums first need that."""

    def __init__(self, sector: SectorInputs) -> None:
        self.x, self.edge_features, _, self.n_owned = sector
        self.edge_index = sector.edge_index.contiguous()
        self.source, self.destination = self.edge_index
        # On meta tensors a pass is only counted (cost/footprint.py), without sparse matrices.
        self._counted = self.edge_index.is_meta

    @cached_property
    def incoming(self) -> _Rows:
        return _Rows(self.destination, self.source, len(self.x))

    @cached_property
    def outgoing(self) -> _Rows:
        return _Rows(self.source, self.destination, len(self.x))

    def product(self, rows: _Rows, weights: Tensor, x: Tensor) -> Tensor:
        """Returns the matrix of `rows` with entries weights [E], times x [N, D]: [N, D]."""
        if self._counted:
            return torch.empty_like(x).index_add_(0, self.source, self._at_edges(x))
        return rows.matrix(weights) @ x

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """Returns each edge's dot product of a at its destination and b at its source: [E]."""
        made = a.new_empty(len(self.source))
        if self._counted:
            for read in (a, b):
                torch.sum(self._at_edges(read), 1, out=made)
            return made
        pattern = self.incoming.matrix(made.zero_())
        made[self.incoming.order] = torch.sparse.sampled_addmm(pattern, a, b.t()).values()
        return made

    def _at_edges(self, x: Tensor) -> Tensor:
        """Returns a view [E, D] that takes the place of x at the edges, when only counting."""
        return x[:1].expand(len(self.source), -1)


class WeightedSums(torch.autograd.Function):
    """weights [E], x [N, D] -> weighted sums of incoming and of outgoing edges: twice [N, D]."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, graph: Neighbours, weights: Tensor, x: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.graph = graph
        ctx.save_for_backward(weights, x)
        return graph.product(graph.incoming, weights, x), graph.product(graph.outgoing, weights, x)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, of_incoming: Tensor, of_outgoing: Tensor
    ) -> tuple[None, Tensor, Tensor]:
        graph: Neighbours = ctx.graph
        weights, x = ctx.saved_tensors
        of_x = graph.product(graph.outgoing, weights, of_incoming)
        of_x += graph.product(graph.incoming, weights, of_outgoing)
        of_weights = graph.sampled(of_incoming, x)
        of_weights += graph.sampled(x, of_outgoing)
        return None, of_weights, of_x


class BothEnds(torch.autograd.Function):
    """Adds the rows at each edge's two ends: [N, D] twice -> [E, D]; sums gradients in float32."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, graph: Neighbours, of_source: Tensor, of_destination: Tensor
    ) -> Tensor:
        ctx.graph, ctx.n_nodes = graph, len(of_source)
        made = of_source.index_select(0, graph.source)
        return made.add_(of_destination.index_select(0, graph.destination))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor, Tensor]:  # type: ignore[no-untyped-def]
        graph, grad = ctx.graph, grad.contiguous()
        of_source, of_destination = (
            accumulable(grad.new_zeros(0)).new_zeros(ctx.n_nodes, grad.shape[1]) for _ in range(2)
        )
        ends = Ends.between(of_source, of_destination, graph.edge_index)
        passes_for(grad.device, grad.dtype).add_to_nodes(grad, ends)
        return None, of_source.to(grad.dtype), of_destination.to(grad.dtype)


class _Recomputed(torch.autograd.Function):
    """Calls a network's `compute` on a graph, `n_inputs` tensors and weights (inputs for engines'
    hooks); the backward pass calls it again.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, compute: Callable[..., Tensor], graph: Neighbours, n_inputs: int, *tensors: Tensor
    ) -> Tensor:
        inputs, weights = tensors[:n_inputs], tensors[n_inputs:]
        # An engine that shards weights gathers them into the same tensors before `backward`.
        ctx.compute, ctx.graph, ctx.weights = compute, graph, weights
        ctx.save_for_backward(*inputs)
        return compute(weights, graph, *inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        needed, n_inputs = ctx.needs_input_grad[3:], len(ctx.saved_tensors)
        tensors = [tensor.detach() for tensor in (*ctx.saved_tensors, *ctx.weights)]
        wanted = [tensor.requires_grad_() for tensor, n in zip(tensors, needed, strict=True) if n]
        with torch.enable_grad():
            made = ctx.compute(tensors[n_inputs:], ctx.graph, *tensors[:n_inputs])
        found = iter(torch.autograd.grad(made, wanted, grad))
        return None, None, None, *(next(found) if n else None for n in needed)


class AttentionGNNConfig(ModelSettings):
    """The attention network of HEP.TrkX. Its version of 2018 has mlp_layers 2 and no layer_norm,
    that of 2019 mlp_layers 4 and layer_norm. Neither has edge_features.
    """

    name: Literal["attention"] = "attention"
    """The attention network of HEP.TrkX."""
    hidden: Width = 64
    """Width of a node's state."""
    layers: Layers = 8
    """Rounds in which the edge network weights the edges and the node network reads their weighted
    sums; all rounds have the same weights."""
    mlp_layers: Linears = 2
    """Linear layers of each network."""
    layer_norm: bool = True
    """LayerNorm before each activation."""
    edge_features: bool = True
    """The edge network also reads the edges' features; HEP.TrkX's reads only states of nodes."""
    recompute: Literal["none", "layer"] = "layer"
    """Parts that the backward pass computes again: `none`, or both networks of each `layer`, from
    the nodes' states and one number per edge."""
    precision: Precision = "fp32"
    """`bf16` computes the edge network in bfloat16; weights, nodes and sums stay float32."""

    def build(self, n_node_features: int, n_edge_features: int, pt_head: bool) -> "AttentionGNN":  # noqa: ARG002
        return AttentionGNN(self, n_node_features, n_edge_features)


class AttentionGNN(LayeredModel[Neighbours]):
    """Classifies edges. Every parameter gets a gradient in each step, also from an empty sector."""

    def __init__(
        self, config: AttentionGNNConfig, n_node_features: int, n_edge_features: int
    ) -> None:
        super().__init__()
        self.config = config
        self.input_network = InputNetwork(config, n_node_features)
        width = config.hidden + n_node_features
        self.edge_network = EdgeNetwork(config, width, n_edge_features)
        self.node_network = NodeNetwork(config, width)

    def layer_calls(self) -> Sequence[LayerCall[Neighbours]]:
        """Lists the same layer `config.layers` times: edge network, then node network."""
        return [partial(self._layer, i) for i in range(self.config.layers)]

    def encode(
        self, sectors: list[SectorInputs]
    ) -> tuple[list[Neighbours], list[Tensor], list[Tensor]]:
        """Computes the nodes' first states; edges keep their input features in all layers."""
        nodes = self.input_network([sector.x for sector in sectors])
        return [*map(Neighbours, sectors)], nodes, [sector.edge_features for sector in sectors]

    def _layer(
        self, i: int, graphs: list[Neighbours], nodes: list[Tensor], edges: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        states, logits = self._logits(graphs, nodes, f"layer {i} edge")
        with traced(f"layer {i} node"):
            return self.node_network(graphs, logits, states), edges

    def decode(
        self,
        graphs: list[Neighbours],
        nodes: list[Tensor],
        edges: list[Tensor],  # noqa: ARG002
    ) -> list[Tensor]:
        """Returns the logits [E] of each sector, float32 at least."""
        return self._logits(graphs, nodes, "logits")[1]

    def _logits(
        self, graphs: list[Neighbours], nodes: list[Tensor], place: str
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns, by sector, node states joined with input features [N, D], and logits [E]."""
        pairs = zip(graphs, nodes, strict=True)
        states = [torch.cat([rows, graph.x], dim=1) for graph, rows in pairs]
        with traced(place):
            return states, self.edge_network(graphs, states)


class _Network(Perceptrons):
    compute: Callable[..., Tensor]  # of one sector, from the weights and each input

    def __init__(self, config: AttentionGNNConfig) -> None:
        super().__init__()
        self._normalises, self._recomputes = config.layer_norm, config.recompute == "layer"
        self._dtype = torch.bfloat16 if config.precision == "bf16" else None

    def forward(self, *inputs: list[Any]) -> list[Tensor]:
        """Computes each sector; with recompute, the backward pass computes it again."""
        weights, sectors = self.weights(), zip(*inputs, strict=True)
        if not self._recomputes:
            return [self.compute(weights, *sector) for sector in sectors]
        again = partial(_Recomputed.apply, self.compute)
        return [again(graph, len(read), *read, *weights) for graph, *read in sectors]

    def _activated(self, values: Tensor) -> Tensor:
        """Applies tanh, after LayerNorm if `config.layer_norm`."""
        return torch.tanh(layer_norm(values, values.shape[1:]) if self._normalises else values)


class InputNetwork(_Network):
    """Computes a node's first state from its features."""

    def __init__(self, config: AttentionGNNConfig, n_node_features: int) -> None:
        super().__init__(config)
        self._recomputes = False
        self.add_linear("mlp_0", n_node_features, config.hidden)

    def compute(self, weights: Sequence[Tensor], features: Tensor) -> Tensor:
        """Maps features [N, F] to [N, H]."""
        return self._activated(linear(features, *weights))


class EdgeNetwork(_Network):
    """Computes an edge's logit from the states of its two nodes and its own features."""

    def __init__(self, config: AttentionGNNConfig, width: int, n_edge_features: int) -> None:
        super().__init__(config)
        self._inputs = [width, width, n_edge_features if config.edge_features else 0]
        widths = [sum(self._inputs), *[config.hidden] * (config.mlp_layers - 1), 1]
        for k in range(config.mlp_layers):
            self.add_linear(f"mlp_{k}", widths[k], widths[k + 1])

    def compute(self, weights: Sequence[Tensor], graph: Neighbours, state: Tensor) -> Tensor:
        """Returns logits [E], float32 at least, from states [N, D] and the edges' features."""
        dtype = self._dtype or state.dtype
        first, bias, *others = (weight.to(dtype) for weight in weights)
        of_source, of_destination, of_edge = first.split(self._inputs, dim=1)
        # Node products come first, then are gathered: nodes are 20 times fewer than edges.
        state = state.to(dtype)
        shares = linear(state, of_source, bias), linear(state, of_destination)
        values: Tensor = BothEnds.apply(graph, *shares)
        if of_edge.shape[1]:
            values = torch.addmm(values, graph.edge_features.to(dtype), of_edge.t())
        for weight, bias in zip(others[::2], others[1::2], strict=True):
            values = linear(self._activated(values), weight, bias)
        return accumulable(values).squeeze(1)


class NodeNetwork(_Network):
    """Computes a node's next state from its own state and its neighbours', weighted by edge."""

    def __init__(self, config: AttentionGNNConfig, width: int) -> None:
        super().__init__(config)
        self.add_mlp("mlp", 3 * width, config.hidden, config.mlp_layers)

    def compute(
        self, weights: Sequence[Tensor], graph: Neighbours, logits: Tensor, state: Tensor
    ) -> Tensor:
        """Returns the new owned states [n_owned, H] from logits [E] and states [N, D]."""
        sums = WeightedSums.apply(graph, torch.sigmoid(logits), state)
        values = torch.cat([total[: graph.n_owned] for total in (*sums, state)], dim=1)
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            values = self._activated(linear(values, weight, bias))
        return values
