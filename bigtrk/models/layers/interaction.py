"""A layer of the Interaction GNN: all edges, then the owned nodes; its gradients by hand.

Between forward and backward it keeps the edges and nodes it read and the edges it made, which the
next layer reads; where the workspace keeps products, it keeps those too.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, H = hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.kernels import passes_for
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.layers.chunked_mlp import Activation, ChunkedMLP, Sink
from bigtrk.models.layers.encoding import Encoded
from bigtrk.models.layers.node_shares import NodeShares
from bigtrk.models.layers.workspace import Workspace
from bigtrk.tracing import traced


@dataclass(frozen=True)
class GraphPass:
    """The tensors that all layers of a forward pass share.

    edge_index: [2, E]. nodes, edges: the encoded features, if each layer reads them.
    """

    edge_index: Tensor
    n_owned: int
    work: Workspace
    nodes: Encoded | None
    edges: Encoded | None


@dataclass(frozen=True)
class Layer:
    """Layer `i` in its pass. edge, node: the activations of its MLPs, empty for nodes that are not
    updated. in_out: incoming and outgoing edges are summed separately.
    """

    graph: GraphPass
    i: int
    edge: Sequence[Activation]
    node: Sequence[Activation]
    in_out: bool


class Interact(torch.autograd.Function):
    """Maps edges e [E, H] and nodes x [N, H] to the output of the edges' MLP [E, W] and the owned
    nodes [n_owned, H], float32 at least (None without update).

    `weights` are the edge MLP's, then the node MLP's, in turn weight and bias; they are inputs, for
    the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, layer: Layer, e: Tensor, x: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        encoded, work = layer.graph.nodes, layer.graph.work
        # The products read the nodes in this type; bf16 takes half of the memory.
        x = encoded.values if layer.i == 0 and encoded else x.to(work.dtype)
        edges = _Edges(layer, weights, e, x)
        # Without a backward pass edges take the place of those read, but not of the encoded ones.
        in_place = not work.trains and layer.i > 0 and edges.mlp.width == e.shape[1]
        made = e if in_place else e.new_empty(len(e), edges.mlp.width)
        sums = edges.new_sums() if layer.node else None
        edges.forward(made, sums)
        owned, kept = None, edges.mlp.kept
        if sums is not None:
            owned, kept_of_nodes = edges.update_forward(sums)
            kept = kept + kept_of_nodes
        if in_place:
            ctx.mark_dirty(e)
        ctx.layer, ctx.weights = layer, weights
        # save_on_cpu holds a CPU's tensor itself: a result that holds its own autograd node is
        # never freed if no backward pass follows.
        ctx.save_for_backward(e, x, made.detach() if layer.edge[-1] == "relu" else None, *kept)
        return made, owned

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad: Tensor, grad_owned: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        e, x, made, *kept = ctx.saved_tensors
        layer: Layer = ctx.layer
        edges = _Edges(layer, ctx.weights, e, x, kept)
        of_weights = [torch.zeros_like(weight) for weight in ctx.weights]
        of_x = torch.zeros_like(x, dtype=layer.graph.work.sums)
        outer = None
        if layer.node and grad_owned is not None:
            outer = edges.update_backward(made, grad_owned, of_x, of_weights)
        of_e = edges.backward(grad, made, outer, of_x, of_weights)
        if layer.i == 0 and layer.graph.nodes and layer.graph.edges:
            _add_encoded(layer.graph.edges, of_e, layer.graph.work)
            _add_encoded(layer.graph.nodes, of_x, layer.graph.work)
        return None, of_e, of_x, *of_weights


class _Edges:
    """The edges of a layer, their MLP and its inputs, and what the nodes read of them."""

    def __init__(
        self,
        layer: Layer,
        weights: Sequence[Tensor],
        e: Tensor,
        x: Tensor,
        kept: Sequence[Tensor] = (),
    ) -> None:
        self.layer, graph = layer, layer.graph
        self._work, self._nodes, self._parts = graph.work, [x], [e]
        if graph.nodes and graph.edges:
            self._nodes, self._parts = [x, graph.nodes.values], [e, graph.edges.values]
        self._n_edge = 2 * len(layer.edge)
        self._node_weights = weights[self._n_edge :]
        n_kept = 2 * (len(layer.edge) - 1)
        self._kept_of_nodes = kept[n_kept:]
        self._shares = NodeShares(weights[0], weights[1], self._nodes, self._work)
        ends = Ends(*self._shares.forward(), *graph.edge_index)
        self.mlp = ChunkedMLP(
            weights[: self._n_edge], layer.edge, self._parts, self._work, ends, kept[:n_kept]
        )
        self.passes = passes_for(self._work.device, self._work.dtype)

    def new_sums(self) -> Ends:
        """Returns zeros [N, H] in which to sum the outgoing and the incoming edges of each node."""
        n_nodes, hidden = self._nodes[0].shape
        zeros = (self._work.zeros(name, n_nodes, hidden) for name in ("outgoing", "incoming"))
        return Ends(*zeros, *self.layer.graph.edge_index)

    def forward(self, made: Tensor, sums: Ends | None) -> None:
        """Fills `made` [E, W], and adds it to the sums of the nodes, if these are updated."""
        with traced(f"layer {self.layer.i} edge"):
            for rows in self._work.chunks(len(made)):
                made[rows] = self.mlp.forward(rows)
                if sums is not None:
                    self.passes.add_to_nodes(made[rows], sums.of(rows))

    def update_forward(self, sums: Ends) -> tuple[Tensor, list[Tensor]]:
        """Returns the owned nodes [n_owned, H], and the tensors kept for the backward pass."""
        with traced(f"layer {self.layer.i} node"):
            update = self._update(sums)
            owned = sums.of_source.new_empty(update.n_rows, update.width)
            for rows in self._work.chunks(update.n_rows):
                owned[rows] = update.forward(rows)
        return owned, update.kept

    def _update(self, sums: Ends) -> ChunkedMLP:
        """Returns the MLP of the owned nodes, which reads their sums and their parts."""
        outgoing, incoming = sums.of_source, sums.of_destination
        totals = [incoming, outgoing] if self.layer.in_out else [incoming.add_(outgoing)]
        inputs = [values[: self.layer.graph.n_owned] for values in (*totals, *self._nodes)]
        return ChunkedMLP(
            self._node_weights, self.layer.node, inputs, self._work, kept=self._kept_of_nodes
        )

    def update_backward(
        self, made: Tensor, grad: Tensor, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> Ends:
        """Returns what the sums of an edge's ends add to its gradient, from the owned nodes'."""
        names = ("of incoming", "of outgoing") if self.layer.in_out else ("of incoming",)
        # Nothing here reads the sums of halo nodes.
        of_sums = [self._work.rows(name, *of_x.shape).zero_() for name in names]
        sinks = [*(_copy_to(total) for total in of_sums), *self._sinks_of_nodes(of_x)]
        with traced(f"layer {self.layer.i} node, backward"):
            sums = self.new_sums()
            for rows in self._work.chunks(len(made)):
                self.passes.add_to_nodes(made[rows], sums.of(rows))
            update = self._update(sums)
            for rows in self._work.chunks(update.n_rows):
                update.backward(rows, grad[rows], None, None, of_weights[self._n_edge :], sinks)
        return Ends(of_sums[-1], of_sums[0], *self.layer.graph.edge_index)

    def backward(
        self,
        grad: Tensor,
        made: Tensor | None,
        outer: Ends | None,
        of_x: Tensor,
        of_weights: Sequence[Tensor],
    ) -> Tensor:
        """Returns the gradient [E, H] of the edges read.

        It takes the place of `grad`, which nothing else reads, where that has its shape.
        """
        e, work, encoded = self._parts[0], self._work, self.layer.graph.edges
        grad = grad.contiguous()
        of_e = grad if grad.shape == e.shape and grad.dtype == e.dtype else torch.empty_like(e)
        sinks = [_copy_to(of_e), *([encoded.add] if encoded else [])]
        of_shares = self.new_sums()
        with traced(f"layer {self.layer.i} edge, backward"):
            for rows in work.chunks(len(e)):
                read_again = None if made is None else made[rows]
                near = None if outer is None else outer.of(rows)
                grads = of_weights[: self._n_edge]
                part = self.mlp.backward(rows, grad[rows], read_again, near, grads, sinks)
                self.passes.add_to_nodes(part, of_shares.of(rows))
            shares = of_shares.of_source, of_shares.of_destination
            self._shares.backward(shares, of_weights[0], of_weights[1], self._sinks_of_nodes(of_x))
        return of_e

    def _sinks_of_nodes(self, of_x: Tensor) -> list[Sink]:
        encoded = self.layer.graph.nodes
        return [_add_to(of_x), *([encoded.add] if encoded else [])]


def _add_encoded(encoded: Encoded, total: Tensor, work: Workspace) -> None:
    """Adds what all layers gave to the gradient of `encoded`.

    This is done in chunks, since a CPU makes float32 copies of both where one is bfloat16: at once
    they took 43 of a rank's 654 MiB (150,000 edges, hidden 64).
    """
    taken = encoded.take()
    for rows in work.chunks(len(total)):
        total[rows] += taken[rows]


def _add_to(total: Tensor) -> Sink:
    return lambda rows, part: passes_for(part.device, part.dtype).add_rows(part, total[rows])


def _copy_to(target: Tensor) -> Sink:
    return lambda rows, part: target[rows].copy_(part)
