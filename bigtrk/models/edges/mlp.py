"""MLPs of rows, chunk by chunk, with gradients by hand, and the modules of their weights.

No pass over the rows is spent on keeping what a chain of operations would keep, and a chunk stays
in cache from its first product to its last. MLPs are like acorn's: LayerNorm without parameters of
its own and ReLU between linear layers, ReLU alone after the last one.

Shapes: M rows of a chunk, N nodes, H = hidden; W the width of a linear layer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bigtrk.models.edges import passes_for, plain
from bigtrk.models.edges.plain import Ends, accumulable
from bigtrk.models.edges.states import EdgeStates
from bigtrk.models.edges.workspace import Workspace

# The activation after a linear layer; "norm" is LayerNorm and ReLU. The last one is "relu" or
# "linear".
Activation = Literal["norm", "relu", "linear"]
# A sink takes the gradient [M, W] of an input's rows.
Sink = Callable[[slice, Tensor], object]


class _Hidden(NamedTuple):
    """Tensors of a linear layer but the last: made [M, W] is its product, normalised where "norm"
    follows, by rstd [M, 1]; read [M, W] is what the next layer reads.
    """

    made: Tensor
    rstd: Tensor
    read: Tensor


class ChunkedMLP:
    """Linear layers; `weights` are in turn their weight [outputs, inputs] and bias [outputs].

    The first one reads `inputs` side by side, as if concatenated. Where there are `ends`, its
    product also gets what both ends of an edge add, bias included. `kept` is what a forward pass
    has kept of each layer but the last: _Hidden's `made` and `rstd` of all rows.
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
        widths = [values.shape[1] for values in inputs]
        self._columns = self._weights[0][:, : sum(widths)].split(widths, dim=1)
        self._passes = passes_for(work.device, work.dtype)
        self.n_rows, self.width = len(inputs[0]), len(self._biases[-1])
        self.kept = list(kept)
        if work.keeps and not kept:
            for bias in self._biases[:-1]:
                self.kept.append(inputs[0].new_empty(self.n_rows, len(bias), dtype=work.dtype))
                self.kept.append(inputs[0].new_empty(self.n_rows, 1, dtype=work.sums))

    def forward(self, rows: slice) -> Tensor:
        """Returns the last layer's rows [M, W], in a buffer that holds them until the next call."""
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

        made: the result of `forward` (None: computed anew); outer: what both ends add to its
        gradient. It adds to `grads`, which are ordered like the weights; the inputs' gradients go
        to `sinks`.
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
                rstd = self._work.sums_of_rows(f"rstd {k}", len(made))
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
        """Returns what both ends add to the product of linear layer k."""
        return None if k or self._ends is None else self._ends.of(rows)

    def _buffer(self, name: str, rows: slice, width: int) -> Tensor:
        return self._work.rows(name, rows.stop - rows.start, width)


class Encode(torch.autograd.Function):
    """An MLP of features: [M, n_inputs] -> [M, H] in the type of `work`. Features get no gradient;
    the weights are inputs, for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, work: Workspace, activations: Sequence[Activation], features: Tensor, *weights: Tensor
    ) -> Tensor:
        mlp = ChunkedMLP(weights, activations, [features], work)
        made = features.new_empty(mlp.n_rows, mlp.width, dtype=work.dtype)
        for rows in work.chunks(mlp.n_rows):
            made[rows] = mlp.forward(rows)
        ctx.work, ctx.activations, ctx.weights = work, activations, weights
        ctx.save_for_backward(features, made, *mlp.kept)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        features, made, *kept = ctx.saved_tensors
        mlp = ChunkedMLP(ctx.weights, ctx.activations, [features], ctx.work, kept=kept)
        grads = [torch.zeros_like(weight) for weight in ctx.weights]
        for rows in ctx.work.chunks(mlp.n_rows):
            mlp.backward(rows, grad[rows], made[rows], None, grads, [None])
        return None, None, None, *grads


class EncodeEdges(torch.autograd.Function):
    """An MLP of edges' features, whose result becomes state 0 of `states`: [E, n_inputs] -> a token
    of it. Features get no gradient; the weights are inputs, for the engines' hooks.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        work: Workspace,
        activations: Sequence[Activation],
        states: EdgeStates,
        features: Tensor,
        *weights: Tensor,
    ) -> Tensor:
        kept: list[Tensor] = []
        for block in states.blocks(made=[states.make(0)]):
            [made] = block.made
            mlp = ChunkedMLP(weights, activations, [features[block.rows]], work)
            for rows in work.chunks(mlp.n_rows):
                made[rows] = mlp.forward(rows)
            kept += mlp.kept
        ctx.states, ctx.work, ctx.activations, ctx.weights = states, work, activations, weights
        ctx.save_for_backward(features, *kept)
        return states.token()

    @staticmethod
    @once_differentiable
    def backward(ctx, token: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # noqa: ARG004
        features, *kept = ctx.saved_tensors
        states: EdgeStates = ctx.states
        grads = [torch.zeros_like(weight) for weight in ctx.weights]
        for block in states.blocks([states.state(0), *states.all_gradients()]):
            values = [features[block.rows]]
            mlp = ChunkedMLP(ctx.weights, ctx.activations, values, ctx.work, kept=kept)
            made, *gradients = block.read
            for rows in ctx.work.chunks(mlp.n_rows):
                grad = states.of_encoded([gradient[rows] for gradient in gradients])
                mlp.backward(rows, grad, made[rows], None, grads, [None])
        states.free()
        return None, None, None, None, *grads


class Encoded:
    """Encoded features of nodes [M, H], which every layer reads.

    Each layer adds its part to one gradient [M, H] (float32 at least), which the first layer takes.
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values.detach()
        self._gradient: Tensor | None = None

    def add(self, rows: slice, part: Tensor) -> None:
        if self._gradient is None:
            self._gradient = torch.zeros_like(accumulable(self.values))
        self._gradient[rows] += part

    def take(self) -> Tensor:
        """Returns the sum over all layers; the next pass starts anew."""
        taken, self._gradient = self._gradient, None
        return torch.zeros_like(self.values) if taken is None else taken


def activations(layers: int) -> list[Activation]:
    """Lists the activations after each of an MLP's linear layers."""
    between: list[Activation] = ["norm"] * (layers - 1)
    return [*between, "relu"]


class Perceptrons(nn.Module):
    """A module that holds the weights of its MLPs itself: an engine that shards parameters gathers
    all of them at once, before `forward`, which does not use them layer by layer.
    """

    def add_linear(self, name: str, n_inputs: int, n_outputs: int) -> None:
        """Adds weight and bias `name`, initialised as nn.Linear does."""
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
        """Returns in turn the weights and biases of the linear layers named `prefix`..."""
        return [value for name, value in self.named_parameters() if name.startswith(prefix)]


class Encoder(Perceptrons):
    """An MLP of features: of each sector [M, n_inputs] -> [M, H] in the workspace's type. With
    `n_outputs` the last hidden layer is normalised too, and a linear one makes so many numbers.
    """

    def __init__(
        self, n_inputs: int, hidden: int, layers: int, n_outputs: int | None = None
    ) -> None:
        super().__init__()
        self.activations = activations(layers)
        self.add_mlp("mlp", n_inputs, hidden, layers)
        if n_outputs is not None:
            self.activations[-1:] = ["norm", "linear"]
            self.add_linear("output", hidden, n_outputs)

    def forward(self, features: list[Tensor], work: Workspace) -> list[Tensor]:
        weights = self.weights()
        return [Encode.apply(work, self.activations, values, *weights) for values in features]


class EdgeEncoder(Perceptrons):
    """An MLP of edges' features (of 1 where there are none): state 0 of each sector, [E, H]."""

    def __init__(self, n_inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.activations = activations(layers)
        self.add_mlp("mlp", max(1, n_inputs), hidden, layers)

    def forward(
        self, features: list[Tensor], states: list[EdgeStates], work: Workspace
    ) -> list[Tensor]:
        """Maps features [E, n_inputs] of each sector to the token of its state 0."""
        weights, tokens = self.weights(), []
        for values, of_sector in zip(features, states, strict=True):
            inputs = values if values.shape[1] else values.new_ones(len(values), 1)
            tokens.append(EncodeEdges.apply(work, self.activations, of_sector, inputs, *weights))
        return tokens


class NodeShares:
    """The nodes' shares of the edges' first product: from `weight` [H, ...], whose last columns are
    those of source and destination, `bias` [H] and the parts of the nodes, each [N, H].
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, nodes: Sequence[Tensor], work: Workspace
    ) -> None:
        self._widths = [values.shape[1] for values in nodes] * 2
        self._bias, self._nodes, self._work = bias.detach().to(work.dtype), nodes, work
        self.weight = weight.detach().to(work.dtype)
        self._weights = self._columns(self.weight)
        self._passes = passes_for(work.device, work.dtype)

    def _columns(self, weight: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Returns the columns of the sources and the destinations, for each part of the nodes."""
        columns = weight[:, -sum(self._widths) :].split(self._widths, dim=1)
        return columns[: len(self._nodes)], columns[len(self._nodes) :]

    def new(self) -> tuple[Tensor, Tensor]:
        """Makes room for what each node adds to edges that leave and that reach it: [N, H]."""
        n_nodes, hidden = len(self._nodes[0]), len(self._bias)
        of_source = self._work.rows("of source", n_nodes, hidden)
        return of_source, self._work.rows("of destination", n_nodes, hidden)

    def forward(self, rows: slice, of_source: Tensor, of_destination: Tensor) -> None:
        """Computes these rows of both shares."""
        nodes = [part[rows] for part in self._nodes]
        of_ends = zip((of_source, of_destination), self._weights, (self._bias, None), strict=True)
        for share, weights, bias in of_ends:
            self._passes.multiply(nodes, [weight.t() for weight in weights], bias, share[rows])

    def backward(
        self, grad: tuple[Tensor, Tensor], of_weight: Tensor, of_bias: Tensor, sinks: Sequence[Sink]
    ) -> None:
        """Propagates gradients [N, H] of both shares; those of the nodes' parts go to `sinks`."""
        self._passes.add_sum(grad[0], of_bias)
        sides = zip(grad, self._weights, self._columns(of_weight), strict=True)
        for of_share, weights, of_weights in sides:
            for rows in self._work.chunks(len(of_share)):
                part = of_share[rows].to(self._work.dtype)
                each = zip(self._nodes, weights, of_weights, sinks, strict=True)
                for values, weight, of_columns, sink in each:
                    self._passes.add_product(part, values[rows], of_columns)
                    out = self._work.rows("gradient of input", len(part), weight.shape[1])
                    self._passes.multiply([part], [weight], None, out)
                    sink(rows, out)
