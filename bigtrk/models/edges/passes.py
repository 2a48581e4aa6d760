"""The passes of an interaction layer over its edges and its owned nodes, with gradients by hand.

Between forward and backward a layer keeps the nodes it read, and states.py the edges; where the
workspace keeps products, the layer keeps these too. MLPs are like acorn's: LayerNorm (without
parameters) and ReLU between linear layers, ReLU alone after the last one. A chunk of rows stays in
cache from an MLP's first product to its last.

Shapes: N nodes of which the first n_owned are owned and the others halo, E edges, M rows of a
chunk, H = hidden; W the width of a linear layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bigtrk.models.edges import plain
from bigtrk.models.edges.states import (
    Block,
    EdgeStates,
    Encoded,
    HaloRows,
    Rows,
    Workspace,
    passes_for,
)
from bigtrk.models.protocol import Ends
from bigtrk.tracing import traced

# The activation after a linear layer; "norm" is LayerNorm and ReLU. The last one is "relu" or
# "linear".
Activation = Literal["norm", "relu", "linear"]
# A sink is called with a slice of an input's rows and their gradient [M, W].
Sink = Callable[[slice, Tensor], object]


class _Hidden(NamedTuple):
    """The tensors of one linear layer (not the last). made [M, W]: its product, after LayerNorm if
    "norm" follows; rstd [M, 1]: the LayerNorm's scale; read [M, W]: the next layer's input.
    """

    made: Tensor
    rstd: Tensor
    read: Tensor


class ChunkedMLP:
    """An MLP over chunks of rows. weights: weight [outputs, inputs] and bias [outputs] in turn. The
    first layer reads the concatenated `inputs`; `ends`, if given, add node rows and the bias to its
    product. kept: `made` and `rstd` (`_Hidden`) of each layer but the last, from a forward pass.
    """

    is_fused = False

    def __init__(
        self,
        weights: Sequence[Tensor],
        activations: Sequence[Activation],
        inputs: Sequence[Tensor],
        work: Workspace,
        ends: Ends | None = None,
        kept: Sequence[Tensor] = (),
    ) -> None:
        self._weights = [weight.detach().to(work.dtype) for weight in weights[::2]]
        self._biases = [bias.detach().to(work.dtype) for bias in weights[1::2]]
        self._activations, self._inputs, self._ends, self._work = activations, inputs, ends, work
        widths = [values.shape[1] for values in inputs]
        self._columns = self._weights[0][:, : sum(widths)].split(widths, dim=1)
        self._passes = passes_for(work.device, work.dtype)
        self.n_rows, self.width = len(inputs[0]), len(self._biases[-1])
        self.kept = list(kept)
        if work.keeps and not kept:
            for bias in self._biases[:-1]:
                self.kept.append(inputs[0].new_empty(self.n_rows, len(bias), dtype=work.dtype))
                self.kept.append(inputs[0].new_empty(self.n_rows, 1, dtype=work.sums))

    def forward_all(self, out: Tensor) -> None:
        """Writes the last layer's rows of all chunks to `out`."""
        for rows in self._work.chunks(self.n_rows):
            out[rows] = self.forward(rows)

    def backward_all(
        self,
        grad_of: Callable[[slice], Tensor],
        made: Tensor | None,
        grads: Sequence[Tensor],
        gradient: Tensor | None = None,
        *,
        adds: bool = True,  # noqa: ARG002  # it always does
    ) -> None:
        """Adds the weights' gradients of all chunks to `grads`. grad_of: gives the gradient of a
        chunk's result. gradient: gets the inputs' gradient before their ReLU; may be their tensor.
        """
        sinks: list[Sink | None] = [None]
        if gradient is not None:
            relu, of_inputs, read = self._passes.relu_backward, gradient, self._inputs[0]
            sinks = [lambda rows, part: relu(part, read[rows], None, of_inputs[rows])]
        for rows in self._work.chunks(self.n_rows):
            of_chunk = None if made is None else made[rows]
            self.backward(rows, grad_of(rows), of_chunk, None, grads, sinks)

    def forward(self, rows: slice) -> Tensor:
        """Returns the last layer's rows [M, W], in a buffer that the next call overwrites."""
        return self._last(rows, self._hidden(rows, again=False))

    def backward(
        self,
        rows: slice,
        grad: Tensor,
        made: Tensor | None,
        outer: Ends | None,
        grads: Sequence[Tensor],
        sinks: Sequence[Sink | None],
    ) -> Tensor:
        """Returns the gradient [M, W] of the first product, in a buffer, from `grad` [M, W].

        made: the result of `forward`; None: it is computed again. outer: node rows, added to `grad`
        at both ends. Adds to `grads`, which are in the order of the weights; gives the inputs'
        gradients to `sinks`.
        """
        hidden = self._hidden(rows, again=True)
        grad = grad.to(self._work.dtype)
        if self._activations[-1] == "relu":
            made = self._last(rows, hidden) if made is None else made
            out = self._buffer("gradient", rows, self.width)
            self._passes.relu_backward(grad, made, outer, out)
            grad = out
        for k in reversed(range(1, len(self._weights))):
            made, rstd, read = hidden[k - 1]
            self._passes.add_product(grad, read, grads[2 * k])
            self._passes.add_sum(grad, grads[2 * k + 1])
            out = self._buffer(f"gradient {k}", rows, read.shape[1])
            self._passes.multiply([grad], [self._weights[k]], None, out)
            if self._activations[k - 1] == "norm":
                self._passes.norm_relu_backward(out, made, rstd, out)
            else:
                self._passes.relu_backward(out, read, None, out)
            grad = out
        self._first_backward(rows, grad, grads, sinks)
        return grad

    def _first_backward(
        self, rows: slice, grad: Tensor, grads: Sequence[Tensor], sinks: Sequence[Sink | None]
    ) -> None:
        if self._ends is None:
            self._passes.add_sum(grad, grads[1])
        start = 0
        for columns, values, sink in zip(self._columns, self._inputs, sinks, strict=True):
            stop = start + columns.shape[1]
            self._passes.add_product(grad, values[rows].to(grad.dtype), grads[0][:, start:stop])
            start = stop
            if sink is not None:
                out = self._buffer("gradient of input", rows, columns.shape[1])
                self._passes.multiply([grad], [columns], None, out)
                sink(rows, out)

    def _hidden(self, rows: slice, again: bool) -> list[_Hidden]:
        hidden: list[_Hidden] = []
        for k, bias in enumerate(self._biases[:-1]):
            if self.kept:
                made, rstd = self.kept[2 * k][rows], self.kept[2 * k + 1][rows]
            else:
                made = self._buffer(f"product {k}", rows, len(bias))
                rstd = self._work.rows(f"rstd {k}", len(made), 1, self._work.sums)
            read = self._buffer(f"activated {k}", rows, len(bias))
            hidden.append(_Hidden(made, rstd, read))
            if again and self.kept:
                torch.clamp_min(made, 0, out=read)
                continue
            self._product(k, rows, hidden, made)
            ends = self._ends_of(rows, k)
            if self._activations[k] == "norm":
                self._passes.norm_relu(made, ends, read, rstd)
            else:
                torch.clamp_min(
                    made if ends is None else made.copy_(plain.total(made, ends)), 0, out=read
                )
        return hidden

    def _last(self, rows: slice, hidden: list[_Hidden]) -> Tensor:
        k = len(self._weights) - 1
        z = self._buffer("made", rows, self.width)
        self._product(k, rows, hidden, z)
        if ends := self._ends_of(rows, k):
            z.copy_(plain.total(z, ends))
        return z.relu_() if self._activations[k] == "relu" else z

    def _product(self, k: int, rows: slice, hidden: list[_Hidden], out: Tensor) -> None:
        if k:
            read, weights = [hidden[k - 1].read], [self._weights[k]]
        else:
            read, weights = [values[rows].to(out.dtype) for values in self._inputs], self._columns
        bias = self._biases[k] if k or self._ends is None else None  # the ends add the first one
        self._passes.multiply(read, [weight.t() for weight in weights], bias, out)

    def _ends_of(self, rows: slice, k: int) -> Ends | None:
        """Returns the ends that add to the product of linear layer k: None unless k is 0."""
        return None if k or self._ends is None else self._ends.of(rows)

    def _buffer(self, name: str, rows: slice, width: int) -> Tensor:
        return self._work.rows(name, rows.stop - rows.start, width)


class NodeShares:
    """The nodes' shares: their terms in the edges' first product. weight [H, ...]: its last columns
    multiply sources and destinations. bias: [H]. nodes: parts of the nodes' rows, each [N, H].
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, nodes: Sequence[Tensor], work: Workspace
    ) -> None:
        self._widths = [values.shape[1] for values in nodes] * 2
        self._bias, self._nodes, self._work = bias, nodes, work
        self._weights = self.columns(weight)
        self._passes = passes_for(work.device, work.dtype)

    def columns(self, weight: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Splits a weight's last columns by part of nodes: for sources, and for destinations."""
        columns = weight[:, -sum(self._widths) :].split(self._widths, dim=1)
        return columns[: len(self._nodes)], columns[len(self._nodes) :]

    def new(self) -> tuple[Tensor, Tensor]:
        """Returns uninitialised buffers for the shares of sources and destinations: [N, H] each."""
        n_nodes, hidden = len(self._nodes[0]), len(self._bias)
        of_source = self._work.rows("of source", n_nodes, hidden)
        return of_source, self._work.rows("of destination", n_nodes, hidden)

    def forward(self, rows: slice, of_source: Tensor, of_destination: Tensor) -> None:
        """Writes these `rows` of both shares; the bias is in the share of the source."""
        nodes = [part[rows] for part in self._nodes]
        of_ends = zip((of_source, of_destination), self._weights, (self._bias, None), strict=True)
        for share, weights, bias in of_ends:
            self._passes.multiply(nodes, [weight.t() for weight in weights], bias, share[rows])

    def backward(
        self, grad: tuple[Tensor, Tensor], of_weight: Tensor, of_bias: Tensor, sinks: Sequence[Sink]
    ) -> None:
        """Adds to of_weight and of_bias, from the shares' `grad` [N, H]; `sinks` get the nodes'."""
        self._passes.add_sum(grad[0], of_bias)
        sides = zip(grad, self._weights, self.columns(of_weight), strict=True)
        for of_share, weights, of_weights in sides:
            for rows in self._work.chunks(len(of_share)):
                part = of_share[rows].to(self._work.dtype)
                each = zip(self._nodes, weights, of_weights, sinks, strict=True)
                for values, weight, of_columns, sink in each:
                    self._passes.add_product(part, values[rows], of_columns)
                    out = self._work.rows("gradient of input", len(part), weight.shape[1])
                    self._passes.multiply([part], [weight], None, out)
                    sink(rows, out)


@dataclass(frozen=True)
class GraphPass:
    """A sector for all layers: edge_index [2, E], encoded nodes (if read again), edges, halo."""

    edge_index: Tensor
    n_owned: int
    work: Workspace
    nodes: Encoded | None
    edges: EdgeStates
    halo: HaloRows = field(default_factory=HaloRows)

    @cached_property
    def n_interior(self) -> int:
        """The number of edges before the first one that reads a halo node."""
        reads_halo = (self.edge_index >= self.n_owned).any(dim=0).nonzero()
        return int(reads_halo[0]) if len(reads_halo) else self.edge_index.shape[1]


@dataclass(frozen=True)
class Layer:
    """Layer `i` of a pass. edge, head, node: the activations of its MLPs. Only the last layer has a
    decoder (head), and no node update. in_out: incoming and outgoing edges are summed apart.
    """

    graph: GraphPass
    i: int
    edge: Sequence[Activation]
    head: Sequence[Activation]
    node: Sequence[Activation]
    in_out: bool


class EdgePass:
    """One layer: computes all edges chunk by chunk, sums them at nodes, and updates owned nodes."""

    _is_fused = False  # whether launches write gradients and the first block's sums; else add to 0

    def __init__(
        self, layer: Layer, weights: Sequence[Tensor], x: Tensor, kept: Sequence[Tensor] = ()
    ) -> None:
        self.layer, graph = layer, layer.graph
        self._work, self._states = graph.work, graph.edges
        self._nodes = [x, graph.nodes.values] if graph.nodes else [x]
        self._weights = weights
        self._mlp_of_edges = self._in_chunks()
        # Weights come in turn with biases; two tensors are kept of each linear layer but the last.
        self._n_edge = 2 * (len(layer.edge) + len(layer.head))
        n_kept = max(0, 2 * (len(self._mlp_of_edges) - 1))
        self.kept, self._kept_of_nodes = list(kept[:n_kept]), kept[n_kept:]
        self._first, self._shares = self._shares_of(*(weight.detach() for weight in weights[:2]))
        self._ends = Ends.between(*self._shares.new(), graph.edge_index)
        self.passes = passes_for(self._work.device, self._work.dtype)
        # Halo nodes always come apart: the bits of a product may depend on its number of rows.
        self._shares.forward(slice(0, graph.n_owned), *self._ends[:2])
        self._has_halo = False
        if not graph.halo.are_awaited:
            self._await_halo()

    @classmethod
    def maker(cls, layer: Layer, weights: Sequence[Tensor]) -> Callable[..., Tensor]:  # noqa: ARG003
        """Returns the function that allocates gradients, such as `torch.zeros_like`."""
        return torch.zeros_like

    def _shares_of(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, NodeShares]:
        """Returns the first weight in the edges' type, and the nodes' shares of its product."""
        weight, bias = (values.to(self._work.dtype) for values in (weight, bias))
        return weight, NodeShares(weight, bias, self._nodes, self._work)

    def _await_halo(self, stop: int | None = None) -> None:
        """Waits for the halo rows if edges before `stop` (None: any edges) read them."""
        graph = self.layer.graph
        if self._has_halo or (stop is not None and stop <= graph.n_interior):
            return
        graph.halo.wait(graph.n_owned)
        if graph.n_owned < len(self._nodes[0]):
            self._shares.forward(slice(graph.n_owned, None), *self._ends[:2])
        self._has_halo = True

    def _in_chunks(self) -> list[Activation]:
        """Lists the activations of the MLP that edges pass in chunks."""
        return [*self.layer.edge, *self.layer.head]

    def _mlp(self, block: Block) -> ChunkedMLP:
        """Makes the MLP for a block of edges, whose first tensors are the MLP's inputs."""
        inputs = block.read[: self._states.n_inputs]
        weights, ends = self._weights[: self._n_edge], self._ends.of(block.rows)
        return ChunkedMLP(weights, self._mlp_of_edges, inputs, self._work, ends, self.kept)

    def _new_sums(self) -> Ends:
        """Returns cleared buffers [N, H] for the sums of edges at each of their ends."""
        size = *self._nodes[0].shape, self._work.sums
        return self._cleared(*(self._work.rows(name, *size) for name in ("outgoing", "incoming")))

    def _sums_of_edges(self) -> Ends:
        """Returns buffers [N, H] for the sums of edges that the node update reads."""
        return self._new_sums()

    def _cleared(self, outgoing: Tensor, incoming: Tensor) -> Ends:
        """Zeroes both buffers [N, H] unless a fused block overwrites them; returns the ends."""
        if not (self._is_fused and self._states.n_edges):
            outgoing.zero_()
            incoming.zero_()
        return Ends.between(outgoing, incoming, self.layer.graph.edge_index)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Makes the next edge state; returns its token and the new owned nodes [n_owned, H]."""
        states, i, sums = self._states, self.layer.i, self._sums_of_edges()
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i), [states.make(i + 1)]):
                self._block_forward(block, sums.of(block.rows))
            self._await_halo()
        with traced(f"layer {i} node"):
            return states.token(), self._updated(sums)

    def _updated(self, sums: Ends) -> Tensor:
        """Returns the updated owned nodes [n_owned, H]."""
        update = self._update(sums)
        owned = sums.of_source.new_empty(update.n_rows, update.width)
        update.forward_all(owned)
        self.kept += update.kept
        return owned

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
        """Makes the MLP that updates the owned nodes from their sums and their own rows."""
        n_owned = self.layer.graph.n_owned
        inputs = [values[:n_owned] for values in (*self._totals(sums), *self._nodes)]
        weights, kept = self._weights[self._n_edge :], self._kept_of_nodes
        return ChunkedMLP(weights, self.layer.node, inputs, self._work, kept=kept)

    def _totals(self, sums: Ends) -> list[Tensor]:
        """Returns the sums [N, H] that the node update reads: incoming, outgoing; or both added."""
        outgoing, incoming = sums.of_source, sums.of_destination
        return [incoming, outgoing] if self.layer.in_out else [incoming.add_(outgoing)]

    def update_backward(self, grad: Tensor, of_x: Tensor, of_weights: Sequence[Tensor]) -> Ends:
        """Adds to of_x, of_weights; returns node rows that both ends add to edges' gradients."""
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
        """Stores the gradient of the edges' first product; adds to of_x, of_weights. It comes from
        `grad` [E, W] of the last layer's output, or from the next layer's gradient and `outer`,
        node rows that both ends add. Also sums the edges read here, for the layer before.
        """
        states, i, shares = self._states, self.layer.i, self._new_sums()
        self._grad, self._outer, sums = grad, outer, None
        if i and not self._is_fused:  # fused passes keep the sums of the forward pass
            sums = self._cleared(torch.empty_like(of_x), torch.empty_like(of_x))
            states.give_sums(*sums[:2])
        read = [*states.inputs(i), *self._read_for_gradient()]
        gradient = states.gradient_rows(i)
        with traced(f"layer {i} edge, backward"):
            for block in states.blocks(read, [gradient]):
                of_block = None if sums is None else sums.of(block.rows)
                self._block_backward(
                    block, of_weights[: self._n_edge], shares.of(block.rows), of_block
                )
            is_own = self._first.dtype != self._weights[0].dtype
            states.give_gradient(gradient, self._first, is_own=is_own)
        with traced(f"layer {i} shares of nodes, backward"):
            self._shares_backward(shares[:2], of_x, of_weights)

    def _shares_backward(
        self, shares: tuple[Tensor, Tensor], of_x: Tensor, of_weights: Sequence[Tensor]
    ) -> None:
        """Propagates the gradients [N, H] of both shares to weights and nodes."""
        self._shares.backward(shares, of_weights[0], of_weights[1], self._sinks_of_nodes(of_x))

    def _read_for_gradient(self) -> list[Rows]:
        """Lists the rows from which the gradient of the layer's output is computed."""
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


def _add_to(total: Tensor) -> Sink:
    return lambda rows, part: total[rows].add_(part)


def _copy_to(target: Tensor) -> Sink:
    return lambda rows, part: target[rows].copy_(part)
