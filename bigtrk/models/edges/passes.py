"""The passes of an interaction layer over its edges and its owned nodes, with gradients by hand.

Between forward and backward a layer keeps the nodes it read, and states.py the edges; where the
workspace keeps products, it keeps those too.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, H = hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.edges import fused, passes_for
from bigtrk.models.edges.mlp import Activation, ChunkedMLP, Encoded, NodeShares, Sink
from bigtrk.models.edges.plain import Ends
from bigtrk.models.edges.schedule import Shape
from bigtrk.models.edges.states import EdgeStates, HaloRows
from bigtrk.models.edges.stores import Block, Rows
from bigtrk.models.edges.triton_passes import sum_at_ends
from bigtrk.models.edges.workspace import Workspace
from bigtrk.tracing import traced


@dataclass(frozen=True)
class GraphPass:
    """The inputs that all layers share: edge_index [2, E], the encoded nodes, if each layer reads
    them, and the rows that other sectors give.
    """

    edge_index: Tensor
    n_owned: int
    work: Workspace
    nodes: Encoded | None
    edges: EdgeStates
    halo: HaloRows = field(default_factory=HaloRows)

    @cached_property
    def n_interior(self) -> int:
        """Counts the first edges before one that reads a halo node."""
        reads_halo = (self.edge_index >= self.n_owned).any(dim=0).nonzero()
        return int(reads_halo[0]) if len(reads_halo) else self.edge_index.shape[1]


@dataclass(frozen=True)
class Layer:
    """Layer `i` in its pass. edge, head, node: the activations of its MLPs, of the edges, of the
    decoder, which only the last layer has, and of the nodes, which the last one does not update.
    in_out: incoming and outgoing edges are summed separately.
    """

    graph: GraphPass
    i: int
    edge: Sequence[Activation]
    head: Sequence[Activation]
    node: Sequence[Activation]
    in_out: bool


class EdgePass:
    """A layer's edges, chunk by chunk: their MLP, its inputs, and what the nodes read of them."""

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        self.layer, graph = layer, layer.graph
        self._work, self._states = graph.work, graph.edges
        self._nodes = [x, graph.nodes.values] if graph.nodes else [x]
        self._mlp_of_edges = self._in_chunks()
        # Weights come in turn with biases; two tensors are kept of each linear layer but the last.
        self._n_edge = 2 * (len(layer.edge) + len(layer.head))
        n_kept = max(0, 2 * (len(self._mlp_of_edges) - 1))
        self._weights = weights
        self.kept, self._kept_of_nodes = list(kept[:n_kept]), kept[n_kept:]
        self._shares = NodeShares(weights[0], weights[1], self._nodes, self._work)
        self._ends = Ends.between(*self._shares.new(), graph.edge_index)
        self.passes = passes_for(self._work.device, self._work.dtype)
        # Halo nodes apart, also where they are there: a product's bits may depend on its rows.
        self._shares.forward(slice(0, graph.n_owned), *self._ends[:2])
        self._has_halo = False
        if not graph.halo.are_awaited:
            self._await_halo()

    def _await_halo(self, stop: int | None = None) -> None:
        """Waits for the halo nodes, if edges before `stop` (None: of all) read any."""
        graph = self.layer.graph
        if self._has_halo or (stop is not None and stop <= graph.n_interior):
            return
        graph.halo.wait(graph.n_owned)
        if graph.n_owned < len(self._nodes[0]):
            self._shares.forward(slice(graph.n_owned, None), *self._ends[:2])
        self._has_halo = True

    def _in_chunks(self) -> list[Activation]:
        """Lists the activations of what is computed of the edges chunk by chunk."""
        return [*self.layer.edge, *self.layer.head]

    def _mlp(self, block: Block) -> ChunkedMLP:
        """Returns the MLP of the edges of a block whose first rows are its inputs."""
        inputs = block.read[: self._states.n_inputs]
        weights, ends = self._weights[: self._n_edge], self._ends.of(block.rows)
        return ChunkedMLP(weights, self._mlp_of_edges, inputs, self._work, ends, self.kept)

    def _new_sums(self) -> Ends:
        """Returns buffers [N, H] in which to sum the edges at each of their ends."""
        n_nodes, hidden = self._nodes[0].shape
        outgoing = self._work.zeros("outgoing", n_nodes, hidden)
        incoming = self._work.zeros("incoming", n_nodes, hidden)
        return Ends.between(outgoing, incoming, self.layer.graph.edge_index)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Makes the edges' next state, and returns its token and the owned nodes [n_owned, H]."""
        states, i, sums = self._states, self.layer.i, self._new_sums()
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._block_forward(block, sums.of(block.rows))
            self._await_halo()
        with traced(f"layer {i} node"):
            update = self._update(sums)
            owned = sums.of_source.new_empty(update.n_rows, update.width)
            for rows in self._work.chunks(update.n_rows):
                owned[rows] = update.forward(rows)
            self.kept += update.kept
        return states.token(), owned

    def _block_forward(self, block: Block, sums: Ends) -> None:
        mlp, [made] = self._mlp(block), block.made
        for rows in self._work.chunks(len(made)):
            self._await_halo(block.rows.start + rows.stop)
            made[rows] = mlp.forward(rows)
            self.passes.add_to_nodes(made[rows], sums.of(rows))
        self.kept = mlp.kept

    def forward_last(self) -> Tensor:
        """Returns the output [E, W] of the edges' MLP."""
        states, i = self._states, self.layer.i
        made = self._nodes[0].new_empty(states.n_edges, len(self._weights[-1]))
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i)):
                mlp, of_block = self._mlp(block), made[block.rows]
                for rows in self._work.chunks(len(of_block)):
                    self._await_halo(block.rows.start + rows.stop)
                    of_block[rows] = mlp.forward(rows)
                self.kept = mlp.kept
            self._await_halo()
        return made

    def _update(self, sums: Ends) -> ChunkedMLP:
        """Returns the MLP of the owned nodes, which reads their sums and their parts."""
        outgoing, incoming = sums.of_source, sums.of_destination
        totals = [incoming, outgoing] if self.layer.in_out else [incoming.add_(outgoing)]
        inputs = [values[: self.layer.graph.n_owned] for values in (*totals, *self._nodes)]
        weights, kept = self._weights[self._n_edge :], self._kept_of_nodes
        return ChunkedMLP(weights, self.layer.node, inputs, self._work, kept=kept)

    def update_backward(self, grad: Tensor, of_x: Tensor, of_weights: Sequence[Tensor]) -> Ends:
        """Returns what the sums of an edge's ends add to its gradient, from the owned nodes'."""
        names = ("of incoming", "of outgoing") if self.layer.in_out else ("of incoming",)
        # Nothing here reads the sums of halo nodes.
        of_sums = [self._work.rows(name, *of_x.shape).zero_() for name in names]
        sinks = [*(_copy_to(total) for total in of_sums), *self._sinks_of_nodes(of_x)]
        edge_index = self.layer.graph.edge_index
        with traced(f"layer {self.layer.i} node, backward"):
            update = self._update(Ends.between(*self._states.take_sums(), edge_index))
            for rows in self._work.chunks(update.n_rows):
                update.backward(rows, grad[rows], None, None, of_weights[self._n_edge :], sinks)
        return Ends.between(of_sums[-1], of_sums[0], edge_index)

    def backward(
        self, grad: Tensor | None, outer: Ends | None, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        """Gives the edges' states the gradient of the first product: of the last layer from `grad`
        [E, W], that of its output; else from the next layer and `outer`, what both ends add to it.

        It also sums the edges that it reads for the node update of the layer before.
        """
        states, i, shares = self._states, self.layer.i, self._new_sums()
        self._grad, self._outer, sums = grad, outer, None
        if i:
            before = torch.zeros_like(of_x), torch.zeros_like(of_x)
            sums = Ends.between(*before, self.layer.graph.edge_index)
            states.give_sums(*before)
        read = [*states.inputs(i), *self._read_for_gradient()]
        gradient = states.gradient_rows(i)
        with traced(f"layer {i} edge, backward"):
            for block in states.blocks(read, [gradient]):
                of_block = None if sums is None else sums.of(block.rows)
                self._block_backward(
                    block, of_weights[: self._n_edge], shares.of(block.rows), of_block
                )
            weight = self._shares.weight
            states.give_gradient(gradient, weight, stay=weight.dtype != self._weights[0].dtype)
        with traced(f"layer {i} shares of nodes, backward"):
            both = shares.of_source, shares.of_destination
            self._shares.backward(both, of_weights[0], of_weights[1], self._sinks_of_nodes(of_x))

    def _read_for_gradient(self) -> list[Rows]:
        """Lists the rows that the gradient of the layer's output is computed from."""
        if self._outer is None:
            return []
        return [self._states.state(self.layer.i + 1), self._states.gradient_after]

    def _block_backward(
        self, block: Block, of_weights: Sequence[Tensor], shares: Ends, sums: Ends | None
    ) -> None:
        mlp, [gradient] = self._mlp(block), block.made
        state, no_sinks = block.read[0], [None] * self._states.n_inputs
        for rows in self._work.chunks(mlp.n_rows):
            if self._outer is None:
                assert self._grad is not None, "the last layer has a gradient"
                part = mlp.backward(
                    rows, self._grad[block.rows][rows], None, None, of_weights, no_sinks
                )
            else:
                made, after = block.read[-2:]
                grad, outer = self._states.from_next(after[rows]), self._outer.of(block.rows)
                part = mlp.backward(rows, grad, made[rows], outer.of(rows), of_weights, no_sinks)
            gradient[rows] = part
            self.passes.add_to_nodes(part, shares.of(rows))
            if sums is not None:
                self.passes.add_to_nodes(state[rows], sums.of(rows))

    def _sinks_of_nodes(self, of_x: Tensor) -> list[Sink]:
        encoded = self.layer.graph.nodes
        return [_add_to(of_x), *([encoded.add] if encoded else [])]


def relu_of(made: Tensor, gradient: Tensor) -> Sink:
    """Returns a sink that writes the gradient of the sum whose ReLU is `made` to `gradient`."""
    passes = passes_for(made.device, made.dtype)
    return lambda rows, part: passes.relu_backward(part, made[rows], None, gradient[rows])


def _add_to(total: Tensor) -> Sink:
    return lambda rows, part: total[rows].add_(part)


def _copy_to(target: Tensor) -> Sink:
    return lambda rows, part: target[rows].copy_(part)


def edge_pass(
    layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
) -> EdgePass:
    """Returns the fastest pass over a layer's edges; `kept` is what it kept in the forward pass."""
    work, (_, hidden) = layer.graph.work, x.shape
    is_fused = fused.usable(work.device, work.dtype, hidden, len(layer.edge))
    return (FusedEdgePass if is_fused else EdgePass)(layer, weights, x, kept)


class FusedEdgePass(EdgePass):
    """The same as `EdgePass`; only the decoder is computed in chunks. It keeps no product of the
    edges: what the backward pass needs of them is computed anew, within a launch.
    """

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        super().__init__(layer, weights, x, kept)
        fused_weights = self._n_fused = 2 * len(layer.edge)
        read, dtype = weights[:fused_weights], self._work.dtype
        hopper = fused.has_hopper(self._work.device)
        self._edge_shape = Shape(x.shape[1], len(layer.edge), self._states.n_inputs, dtype, hopper)
        if self._edge_shape.whole:
            others = [w.detach().to(dtype) if w.ndim > 1 else w for w in read[1:]]
            read = [self._shares.weight, *others]
        self._read_weights = read

    def _in_chunks(self) -> list[Activation]:
        return list(self.layer.head)

    def _block_forward(self, block: Block, sums: Ends) -> None:
        [made] = block.made
        self._launch(block)
        sum_at_ends(made, sums, adds=block.rows.start > 0)

    def _launch(self, block: Block) -> None:
        """Makes a block's next state; while halo rows come, first of the edges that read none."""
        [made], ends = block.made, self._ends.of(block.rows)
        for rows in self._launches(block.rows):
            self._await_halo(block.rows.start + rows.stop)
            read = [values[rows] for values in block.read]
            fused.forward(read, ends.of(rows), self._read_weights, made[rows])

    def _launches(self, block: slice) -> list[slice]:
        """Lists a block's launches, whose programs have the same rows as those of one."""
        n_rows = block.stop - block.start
        if not self._has_halo:
            interior = self.layer.graph.n_interior - block.start
            interior -= interior % self._edge_shape.forward_rows
            if 0 < interior < n_rows:
                return [slice(0, interior), slice(interior, n_rows)]
        return [slice(0, n_rows)]

    def forward_last(self) -> Tensor:
        states, i = self._states, self.layer.i
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._launch(block)
            self._await_halo()
        output = self._nodes[0].new_empty(states.n_edges, len(self._weights[-1]))
        with traced("decoder"):
            for block in states.blocks([states.state(i + 1)]):
                mlp, of_block = self._decoder(block), output[block.rows]
                for rows in self._work.chunks(len(of_block)):
                    of_block[rows] = mlp.forward(rows)
                self.kept = mlp.kept
        return output

    def _decoder(self, block: Block) -> ChunkedMLP:
        weights = self._weights[self._n_fused :]
        return ChunkedMLP(weights, self._mlp_of_edges, block.read, self._work, kept=self.kept)

    def backward(
        self, grad: Tensor | None, outer: Ends | None, of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        if grad is not None:
            self._decoder_backward(grad, of_weights[self._n_fused :])
        super().backward(grad, outer, of_x, of_weights)

    def _decoder_backward(self, grad: Tensor, of_weights: Sequence[Tensor]) -> None:
        """Puts the gradient of the edges' last product in the place of their last state."""
        states = self._states
        state = states.state(self.layer.i + 1)
        with traced("decoder, backward"):
            for block in states.blocks([state], [state]):
                mlp, sink = self._decoder(block), relu_of(block.read[0], block.made[0])
                for rows in self._work.chunks(mlp.n_rows):
                    mlp.backward(rows, grad[block.rows][rows], None, None, of_weights, [sink])

    def _read_for_gradient(self) -> list[Rows]:
        if self._outer is None:
            return [self._states.state(self.layer.i + 1)]
        return super()._read_for_gradient()

    def _block_backward(
        self, block: Block, of_weights: Sequence[Tensor], shares: Ends, sums: Ends | None
    ) -> None:
        n_inputs, [gradient] = self._states.n_inputs, block.made
        inputs, made, adds = block.read[:n_inputs], block.read[n_inputs], block.rows.start > 0
        given = None
        if self._outer is not None:
            outer = self._outer.of(block.rows)
            given = fused.NextLayer(block.read[-1], self._states.weight_after, outer)
        weights, ends = self._read_weights, self._ends.of(block.rows)
        fused.backward(
            inputs, ends, weights, made, given, gradient, of_weights[: len(weights)], adds
        )
        others = (None, None) if sums is None else (inputs[0], sums)
        sum_at_ends(gradient, shares, adds, *others)


class Interact(torch.autograd.Function):
    """The token of the edges' state i and nodes x [N, H] -> that of state i + 1 and the owned nodes
    [n_owned, H], float32 at least; without a node update the output [E, W] of the edges' MLP, None.

    `weights`, the edge MLP's and the node MLP's, are inputs for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        layer: Layer,
        token: Tensor,  # noqa: ARG004  # it tells autograd which layer is before
        x: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        encoded, work, halo = layer.graph.nodes, layer.graph.work, layer.graph.halo
        # The products read the nodes in this type; bf16 takes half of the memory.
        x = encoded.values if layer.i == 0 and encoded else halo.read(x, work.dtype)
        edges = edge_pass(layer, weights, x)
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
        # Comes first: as a thread's first operation on a GPU a product of cuBLAS warns.
        of_x = torch.zeros_like(x, dtype=layer.graph.work.sums)
        edges = edge_pass(layer, ctx.weights, x, kept)
        of_weights = [torch.zeros_like(weight) for weight in ctx.weights]
        if grad_owned is None:
            edges.backward(grad, None, of_x, of_weights)
        else:
            outer = edges.update_backward(grad_owned, of_x, of_weights)
            edges.backward(None, outer, of_x, of_weights)
        if layer.i == 0 and layer.graph.nodes:
            encoded = layer.graph.nodes.take()
            # In chunks: a CPU makes float32 copies of both where one is bfloat16.
            for rows in layer.graph.work.chunks(len(of_x)):
                of_x[rows] += encoded[rows]
        return None, layer.graph.edges.token(), of_x, *of_weights
