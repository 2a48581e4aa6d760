"""An MLP of rows, chunk by chunk, with its gradients derived by hand.

No pass over the rows is spent on keeping what a chain of operations would keep, and a chunk stays
in cache from its first product to its last.

Shapes: M rows of a chunk; W the width of a linear layer.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from bigtrk.models.kernels import passes_for, plain
from bigtrk.models.kernels.plain import Ends
from bigtrk.models.layers.workspace import Workspace

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
