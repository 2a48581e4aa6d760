"""Rows by their numbers, with a gradient of one order: torch's own adds up by atomics, on a GPU and
for indexing with several threads on a CPU too.

Shapes: N rows, M chosen ones, H features.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.kernels.plain import accumulable, add_at


def gathered(values: Tensor, rows: Tensor) -> Tensor:
    """Returns rows [M] of values [N, H]: [M, H]. Gradients are summed in float32 at least."""
    made: Tensor = _Gathered.apply(values, rows)
    return made


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: Tensor, rows: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.n_rows = len(values)
        ctx.save_for_backward(rows)
        return values.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        (rows,) = ctx.saved_tensors
        parts = accumulable(grad)
        total = parts.new_zeros(ctx.n_rows, *grad.shape[1:])
        add_at(total, rows, parts)
        return total.to(grad.dtype), None
