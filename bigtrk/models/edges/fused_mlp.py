"""MLPs of rows in a few launches on GPUs (triton_whole_rows.py): encoders, and the edges' decoder.

Shapes: M rows, F features, H = hidden, W outputs of a decoder.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bigtrk.models.edges import fused, schedule, work
from bigtrk.models.edges.passes import Activation, ChunkedMLP
from bigtrk.models.edges.schedule import WholeRows
from bigtrk.models.edges.states import Workspace


def tile_of(
    weights: Sequence[Tensor], activations: Sequence[Activation], of: Workspace
) -> WholeRows | None:
    """Returns the tile of launches for an MLP of these weights; None where it runs in chunks."""
    (hidden, n_inputs), layers, n_outputs = weights[0].shape, len(activations), 0
    if of.dtype != torch.bfloat16 or not fused.usable(of.device, of.dtype, hidden, 1):
        return None
    if activations[-1] == "linear":
        layers, n_outputs = layers - 1, len(weights[-1])
    return schedule.rows_tile(hidden, n_inputs, layers, n_outputs, fused.capability(of.device))


def mlp_of(
    weights: Sequence[Tensor],
    activations: Sequence[Activation],
    rows: Tensor,
    of: Workspace,
    kept: Sequence[Tensor] = (),
) -> "ChunkedMLP | FusedMLP":
    """Returns the fastest form of an MLP of rows [M, F]."""
    tile = tile_of(weights, activations, of)
    if tile is None:
        return ChunkedMLP(weights, activations, [rows], of, kept=kept)
    return FusedMLP(weights, activations, rows, tile)


class FusedMLP:
    """`ChunkedMLP` in launches for all rows [M, F] at once; its backward pass computes products
    again. Linear layers have width H; a last one without an activation has few outputs W.
    """

    is_fused = True
    kept: Sequence[Tensor] = ()

    def __init__(
        self,
        weights: Sequence[Tensor],
        activations: Sequence[Activation],
        rows: Tensor,
        tile: WholeRows,
    ) -> None:
        self._rows, self._tile = rows.contiguous(), tile
        self._weights = tuple(weight.detach() for weight in weights)
        self.n_rows, self.width = len(rows), len(weights[-1])
        self._hidden = len(weights[0])
        self._n_outputs = self.width if activations[-1] == "linear" else 0
        self._norms = tuple(one == "norm" for one in activations if one != "linear")
        self._of_program = schedule.rows_of_program(self.n_rows, self._hidden, tile.height)

    def forward_all(self, out: Tensor) -> None:
        """Makes the last layer's rows [M, H], or the outputs [M, W]."""
        self._launch("whole_forward", 1, None, self._weights, out)

    def backward_all(
        self,
        grad_of: Callable[[slice], Tensor],
        made: Tensor | None,  # noqa: ARG002  # it is computed anew
        grads: Sequence[Tensor],
        gradient: Tensor | None = None,
        *,
        adds: bool = False,
    ) -> None:
        """Propagates as ChunkedMLP does, but writes `grads`, or with `adds` adds to them."""
        grad, layers = grad_of(slice(0, self.n_rows)).contiguous(), len(self._norms)
        lines = layers * (self._hidden + 1) + self._n_outputs
        programs = -(-self.n_rows // self._of_program)
        partials = grad.new_empty(programs, lines, self._hidden, dtype=torch.float32)
        for summed, lowest in self._tile.launches(layers):
            tensors = None, None, grad, None if lowest else gradient, self._weights, partials
            named = {"summed": summed, "lowest": lowest, "n_lines": [lines]}
            self._launch("whole_backward", 3 if all(summed) else 2, *tensors, **named)
        of_biases = list(grads[1 : 2 * layers : 2])
        if self._n_outputs:
            of_biases += grads[-2].unbind()
            if adds:
                grads[-1].add_(grad.sum(0))
            else:
                torch.sum(grad, 0, out=grads[-1])
        fused.sum_partials(partials, grads[: 2 * layers : 2], of_biases, adds)

    def _launch(self, name: str, products: int, *tensors: Any, **named: Any) -> None:
        """Launches a kernel over all rows; it computes `products` times those of forward."""
        hidden, n_inputs = self._weights[0].shape
        if work.counts(self._rows.device):
            moved = sum(one.nbytes for one in (self._rows, *tensors) if isinstance(one, Tensor))
            each = hidden * (hidden * (len(self._norms) - 1) + n_inputs)
            work.note(work.Work(True, 2.0 * products * self.n_rows * each, moved))
            return
        named |= {"norms": self._norms, "n_outputs": self._n_outputs}
        layout = self._of_program, self._tile.height, self._tile.warps, schedule.ROWS_STAGES
        fused.launch_whole(name, [self._rows], tensors, self._weights[0], layout, **named)
