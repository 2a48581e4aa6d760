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
from bigtrk.models.edges.states import Block, EdgeStates, Encoded, HaloRows, Workspace, passes_for
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


class Product:
    """The product of concatenated `inputs`, each [M, W], and a weight [H, sum of all W]."""

    def __init__(self, weight: Tensor, inputs: Sequence[Tensor], work: Workspace) -> None:
        self._inputs, self._work = inputs, work
        self._passes = passes_for(work.device, work.dtype)
        self.columns = self.split(weight)

    def split(self, weight: Tensor) -> list[Tensor]:
        """Splits a weight's columns by input."""
        return list(weight.split([values.shape[1] for values in self._inputs], dim=1))

    def forward(self, rows: slice, bias: Tensor | None, out: Tensor) -> None:
        """Writes the product of these rows, and the bias [H] if any, to `out`."""
        read = [values[rows].to(out.dtype) for values in self._inputs]
        self._passes.multiply(read, [columns.t() for columns in self.columns], bias, out)

    def backward(
        self, rows: slice, grad: Tensor, of_weight: Tensor, sinks: Sequence[Sink | None]
    ) -> None:
        """Adds to `of_weight`, from the gradient of these rows; `sinks` get those of the inputs."""
        each = zip(self._inputs, self.columns, self.split(of_weight), sinks, strict=True)
        for values, columns, of_columns, sink in each:
            self._passes.add_product(grad, values[rows].to(grad.dtype), of_columns)
            if sink is not None:
                out = self._work.rows("gradient of input", len(grad), columns.shape[1])
                self._passes.multiply([grad], [columns], None, out)
                sink(rows, out)


class ChunkedMLP:
    """An MLP over chunks of rows. weights: weight [outputs, inputs] and bias [outputs] in turn. The
    first layer reads the concatenated `inputs`; `ends`, if given, add node rows and the bias to its
    product. kept: `made` and `rstd` (`_Hidden`) of each layer but the last, from a forward pass.
    """

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
        self._n_inputs = sum(values.shape[1] for values in inputs)
        self._first = Product(self._weights[0][:, : self._n_inputs], inputs, work)
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
        if self._ends is None:
            self._passes.add_sum(grad, grads[1])
        self._first.backward(rows, grad, grads[0][:, : self._n_inputs], sinks)
        return grad

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
            if self._activations[k] == "norm":
                self._passes.norm_relu(made, self._ends_of(rows, k), read, rstd)
            else:
                torch.clamp_min(made, 0, out=read)
        return hidden

    def _last(self, rows: slice, hidden: list[_Hidden]) -> Tensor:
        k = len(self._weights) - 1
        z = self._buffer("made", rows, self.width)
        self._product(k, rows, hidden, z)
        return z.relu_() if self._activations[k] == "relu" else z

    def _product(self, k: int, rows: slice, hidden: list[_Hidden], out: Tensor) -> None:
        """Writes the product of linear layer k, and adds its ends unless a LayerNorm does."""
        bias = self._biases[k] if k or self._ends is None else None  # the ends add the first one
        if k:
            self._passes.multiply([hidden[k - 1].read], [self._weights[k].t()], bias, out)
        else:
            self._first.forward(rows, bias, out)
        if self._activations[k] != "norm" and (ends := self._ends_of(rows, k)):
            out.copy_(plain.total(out, ends))

    def _ends_of(self, rows: slice, k: int) -> Ends | None:
        """Returns the ends that add to the product of linear layer k: None unless k is 0."""
        return None if k or self._ends is None else self._ends.of(rows)

    def _buffer(self, name: str, rows: slice, width: int) -> Tensor:
        return self._work.rows(name, rows.stop - rows.start, width)


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
        self.layer, graph, self._weights = layer, layer.graph, weights
        self._work, self._states = graph.work, graph.edges
        self._nodes = [x, graph.nodes.values] if graph.nodes else [x]
        self._mlp_of_edges = [*layer.edge, *layer.head]
        # Weights come in turn with biases; two tensors are kept of each linear layer but the last.
        self._n_edge = 2 * len(self._mlp_of_edges)
        self.kept, self._kept_of_nodes = list(kept[: self._n_edge - 2]), kept[self._n_edge - 2 :]
        self.passes = passes_for(self._work.device, self._work.dtype)
        self._first, self._bias = (weight.detach() for weight in weights[:2])
        if not self._is_fused:  # launches convert what they read
            self._first = self._first.to(self._work.dtype)
            self._bias = self._bias.to(self._work.dtype)
        columns = self._of_nodes(self._first)
        self._sides = [Product(of_side, self._nodes, self._work) for of_side in columns]
        of_source = self._work.rows("of source", len(x), len(self._bias))
        of_destination = self._work.rows("of destination", len(x), len(self._bias))
        self._ends = Ends.between(of_source, of_destination, graph.edge_index)
        # Halo nodes always come apart: the bits of a product may depend on its number of rows.
        self._share(slice(0, graph.n_owned))
        self._has_halo = False
        if not graph.halo.are_awaited:
            self._await_halo()

    @classmethod
    def maker(cls, layer: Layer, weights: Sequence[Tensor]) -> Callable[..., Tensor]:  # noqa: ARG003
        """Returns the function that allocates gradients, such as `torch.zeros_like`."""
        return torch.zeros_like

    def _of_nodes(self, weight: Tensor) -> list[Tensor]:
        """Selects the first weight's columns for nodes: for sources, and for destinations."""
        width = sum(part.shape[1] for part in self._nodes)
        return list(weight[:, -2 * width :].split(width, dim=1))

    def _share(self, rows: slice) -> None:
        """Writes these nodes' shares: their terms in the edges' first product, with its bias."""
        sides = zip(self._sides, self._ends[:2], (self._bias, None), strict=True)
        for side, share, bias in sides:
            side.forward(rows, bias, share[rows])

    def _await_halo(self, stop: int | None = None) -> None:
        """Waits for the halo rows if edges before `stop` (None: any edges) read them."""
        graph = self.layer.graph
        if self._has_halo or (stop is not None and stop <= graph.n_interior):
            return
        graph.halo.wait(graph.n_owned)
        if graph.n_owned < len(self._nodes[0]):
            self._share(slice(graph.n_owned, None))
        self._has_halo = True

    def _mlp(self, block: Block) -> ChunkedMLP:
        """Makes the MLP for a block of edges, whose first tensors are the MLP's inputs."""
        inputs = block.read[: self._states.n_inputs]
        weights, ends = self._weights[: self._n_edge], self._ends.of(block.rows)
        return ChunkedMLP(weights, self._mlp_of_edges, inputs, self._work, ends, self.kept)

    def _new_sums(self, *kept: Tensor) -> Ends:
        """Returns room for sums of edges at each of their ends [N, H]: `kept`, or else buffers. It
        is zeroed unless a fused block overwrites it.
        """
        size = *self._nodes[0].shape, self._work.sums
        buffers = (self._work.rows(name, *size) for name in ("outgoing", "incoming"))
        outgoing, incoming = kept or buffers
        if not (self._is_fused and self._states.n_edges):
            outgoing.zero_()
            incoming.zero_()
        return Ends.between(outgoing, incoming, self.layer.graph.edge_index)

    def _sums_of_edges(self) -> Ends:
        """Returns room [N, H] for the sums of edges that the node update reads."""
        return self._new_sums()

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

    def _block_forward(self, block: Block, sums: Ends | None) -> None:
        mlp, [made] = self._mlp(block), block.made
        for rows in self._work.chunks(len(made)):
            self._await_halo(block.rows.start + rows.stop)
            made[rows] = mlp.forward(rows)
            if sums is not None:
                self.passes.add_to_nodes(made[rows], sums.of(rows))
        self.kept = mlp.kept

    def forward_last(self) -> Tensor:
        """Returns the output [E, W] of the edges' MLP."""
        states, i = self._states, self.layer.i
        made = self._nodes[0].new_empty(states.n_edges, len(self._weights[-1]))
        with traced(f"layer {i} edge"):
            for block in states.blocks(states.inputs(i)):
                self._block_forward(block._replace(made=[made[block.rows]]), None)
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
        sinks = [*(total.__setitem__ for total in of_sums), *self._sinks_of_nodes(of_x)]
        with traced(f"layer {self.layer.i} node, backward"):
            sums, self._states.sums = self._states.sums, None
            assert sums is not None, "the next layer has summed them"
            update = self._update(sums)
            for rows in self._work.chunks(update.n_rows):
                update.backward(rows, grad[rows], None, None, of_weights[self._n_edge :], sinks)
        return Ends.between(of_sums[-1], of_sums[0], self.layer.graph.edge_index)

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
            states.sums = sums = self._new_sums(torch.empty_like(of_x), torch.empty_like(of_x))
        read = states.inputs(i)
        if outer is not None:
            read += [states.state(i + 1), states.gradients[-1].rows]
        elif self._is_fused:
            read.append(states.state(i + 1))  # the gradient of the edges' last product
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
        self.passes.add_sum(shares[0], of_weights[1])
        each = zip(self._sides, shares, self._of_nodes(of_weights[0]), strict=True)
        for side, of_share, of_columns in each:
            for rows in self._work.chunks(len(of_share)):
                part = of_share[rows].to(self._work.dtype)
                side.backward(rows, part, of_columns, self._sinks_of_nodes(of_x))

    def _block_backward(
        self, block: Block, of_weights: Sequence[Tensor], shares: Ends, sums: Ends | None
    ) -> None:
        mlp, [gradient] = self._mlp(block), block.made
        state, no_sinks = block.read[0], [None] * self._states.n_inputs
        for rows in self._work.chunks(mlp.n_rows):
            if self._outer is None:
                assert self._grad is not None, "the last layer has a gradient"
                grad, made, outer = self._grad[block.rows][rows], None, None
            else:
                of_block, after = block.read[-2:]
                grad, made = self._states.from_next(after[rows]), of_block[rows]
                outer = self._outer.of(block.rows).of(rows)
            part = mlp.backward(rows, grad, made, outer, of_weights, no_sinks)
            gradient[rows] = part
            self.passes.add_to_nodes(part, shares.of(rows))
            if sums is not None:
                self.passes.add_to_nodes(state[rows], sums.of(rows))

    def _sinks_of_nodes(self, of_x: Tensor) -> list[Sink]:
        """Lists the functions that add to the gradients of the nodes, and of the encoded nodes."""
        encoded = self.layer.graph.nodes
        sinks: list[Sink] = [lambda rows, part: of_x[rows].add_(part)]
        return [*sinks, encoded.add] if encoded else sinks
