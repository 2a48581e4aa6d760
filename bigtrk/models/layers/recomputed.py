"""A function whose backward pass computes it again, instead of keeping intermediate tensors."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def recomputed(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor]
) -> Tensor:
    """Computes `function(*inputs, *weights)` and keeps only `inputs` for the backward pass.

    All that gets a gradient is an argument, weights too, for the engines' hooks. torch's own
    checkpoint would run a module's hooks once more in the backward pass.
    """
    made: Tensor = _Recomputed.apply(function, len(inputs), *inputs, *weights)
    return made


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, function: Callable[..., Tensor], n_inputs: int, *tensors: Tensor
    ) -> Tensor:
        # An engine that shards weights gathers them into the same tensors before `backward`.
        ctx.function, ctx.weights = function, tensors[n_inputs:]
        ctx.save_for_backward(*tensors[:n_inputs])
        return function(*tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        needed = ctx.needs_input_grad[2:]
        tensors = [tensor.detach() for tensor in (*ctx.saved_tensors, *ctx.weights)]
        wanted = [tensor.requires_grad_() for tensor, n in zip(tensors, needed, strict=True) if n]
        with torch.enable_grad():
            made = ctx.function(*tensors)
        found = iter(torch.autograd.grad(made, wanted, grad))
        return None, None, *(next(found) if n else None for n in needed)
