"""Rows in chunks that stay in cache, forward and backward.

Between forward and backward only what the module read is kept; the rest is computed anew, chunk by
chunk, so the working set does not grow with the event.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bigtrk.models.mlp import RowModule

# Below a huge page, so that a CPU's buffers come from the heap, again and again.
CPU_BYTES, GPU_BYTES = 2**20, 2**26


def chunks(n_rows: int, hidden: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows whose float32 features take a megabyte (on a GPU 64)."""
    step = max(1, (GPU_BYTES if device.type == "cuda" else CPU_BYTES) // (4 * hidden))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def same_autocast(device: torch.device) -> Any:
    """A context with the autocast that is in force now, for the backward pass."""
    kind = device.type
    enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=enabled)


class ChunkedRows(torch.autograd.Function):
    """A module of rows, [M, n_inputs] -> [M, ...] in `dtype`. Its parameters are inputs too."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, module: RowModule, hidden: int, dtype: torch.dtype, values: Tensor, *_: Tensor
    ) -> Tensor:
        ctx.module, ctx.hidden, ctx.autocast = module, hidden, same_autocast(values.device)
        ctx.save_for_backward(values)
        made = module.compute(values[:0]).to(dtype)
        result = made.new_empty(len(values), *made.shape[1:])
        for rows in chunks(len(values), hidden, values.device):
            result[rows] = module.compute(values[rows])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        (values,) = ctx.saved_tensors
        parameters = list(ctx.module.parameters())
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        of_values = torch.empty_like(values) if ctx.needs_input_grad[3] else None
        for rows in chunks(len(values), ctx.hidden, values.device):
            with torch.enable_grad(), ctx.autocast:
                chunk = values[rows].detach().requires_grad_(of_values is not None)
                made = ctx.module.compute(chunk)
            wanted = parameters if of_values is None else [*parameters, chunk]
            found = torch.autograd.grad(made, wanted, grad[rows].to(made.dtype))
            for total, part in zip(sums, found, strict=False):
                total += part
            if of_values is not None:
                of_values[rows] = found[-1]
        return None, None, None, of_values, *sums
