"""MLPs over rows in a few launches on GPUs (triton_whole_rows.py): encoders and the edge decoder.

Shapes: M rows, F features, H = hidden, W outputs of a decoder.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bigtrk.models.edges import fused, schedule
from bigtrk.models.edges.passes import Activation, ChunkedMLP
from bigtrk.models.edges.schedule import WholeRows
from bigtrk.models.edges.states import Workspace


def tile_of(
    weights: Sequence[Tensor], activations: Sequence[Activation], of: Workspace
) -> WholeRows | None:
    """Returns the tile for launching an MLP with these weights; None if it must run in chunks."""
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
    """Makes the fastest form of an MLP over `rows` [M, F]."""
    tile = tile_of(weights, activations, of)
    if tile is None:
        return ChunkedMLP(weights, activations, [rows], of, kept=kept)
    norms = tuple(one == "norm" for one in activations if one != "linear")
    n_outputs = len(weights[-1]) if activations[-1] == "linear" else 0
    read, stages = [rows.contiguous()], schedule.ROWS_STAGES
    return FusedMLP(read, weights, norms, tile, of.dtype, n_outputs=n_outputs, stages=stages)


class FusedMLP(fused.WholeMLP):
    """A `ChunkedMLP` launched for all rows [M, F] at once; the backward pass repeats the products.
    Linear layers have width H; a last one without an activation has few outputs W.
    """

    is_fused = True
    kept: Sequence[Tensor] = ()

    def forward_all(self, out: Tensor) -> None:
        """Writes the last layer's rows [M, H], or the outputs [M, W], to `out`."""
        self.forward(out, (self.rows_of_program, *self.tile[:2]))

    def backward_all(
        self,
        grad_of: Callable[[slice], Tensor],
        made: Tensor | None,  # noqa: ARG002  # it is computed anew
        grads: Sequence[Tensor],
        gradient: Tensor | None = None,
        *,
        adds: bool = False,
    ) -> None:
        """Propagates as ChunkedMLP does, but writes `grads`; only with `adds` it adds to them."""
        grad = grad_of(slice(0, len(self.read[0]))).contiguous()
        self.backward(None, grad, gradient, grads, adds)
        if self.n_outputs and adds:
            grads[-1].add_(grad.sum(0))
        elif self.n_outputs:
            torch.sum(grad, 0, out=grads[-1])
