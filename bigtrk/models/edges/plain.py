"""The passes over M rows of H features and N nodes in plain torch, for every device and type; the
oracle of the other forms. Each writes into a given tensor; `out` may be the gradient it reads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bigtrk.models.protocol import Ends, accumulable

EPS = 1e-5  # torch's own


def total(values: Tensor, ends: Ends | None) -> Tensor:
    """Returns `values` + the rows of each edge's two nodes: [M, H], float32 at least."""
    values = accumulable(values)
    if ends is None:
        return values
    of_source = accumulable(ends.of_source.index_select(0, ends.source))
    return values + of_source + ends.of_destination.index_select(0, ends.destination)


def norm_relu(z: Tensor, ends: Ends | None, out: Tensor, rstd: Tensor) -> None:
    """Overwrites z [M, H] by the LayerNorm of z + both nodes' rows; writes its ReLU to `out`, and 1
    / the standard deviation of each row to rstd [M, 1], float32 at least.
    """
    values = total(z, ends)
    normal, _, scale = torch.native_layer_norm(values, values.shape[1:], None, None, EPS)
    rstd.copy_(scale)
    z.copy_(normal)
    out.copy_(normal.relu_())


def norm_relu_backward(grad: Tensor, normal: Tensor, rstd: Tensor, out: Tensor) -> None:
    """Writes the gradient [M, H] before LayerNorm, from `grad` after ReLU, to `out`."""
    normal = accumulable(normal)
    grad = torch.where(normal <= 0, 0, accumulable(grad))
    size, wanted = normal.shape[1:], [True, False, False]
    zero, one = torch.zeros_like(rstd), torch.ones_like(rstd)
    backward = torch.ops.aten.native_layer_norm_backward
    made = backward(grad, normal, size, zero, one, None, None, wanted)
    out.copy_(made[0].mul_(rstd))


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor) -> None:
    """Writes grad + both nodes' rows where e > 0, else 0, to `out` [M, H]."""
    out.copy_(torch.where(e > 0, total(grad, ends), 0))


def add_to_nodes(values: Tensor, ends: Ends) -> None:
    """Adds each row to the sums [N, H], float32 at least, of its two nodes in `ends`."""
    values = accumulable(values)
    add_at(ends.of_source, ends.source, values)
    add_at(ends.of_destination, ends.destination, values)


def add_at(total: Tensor, rows: Tensor, values: Tensor) -> None:
    """Adds values [M, ...] to rows [M] of `total`, in order (index_add_ keeps none on a GPU)."""
    if total.device.type in ("cpu", "meta"):
        total.index_add_(0, rows, values)
    else:
        total.index_put_((rows,), values, accumulate=True)


def multiply(
    rows: Sequence[Tensor], weights: Sequence[Tensor], bias: Tensor | None, out: Tensor
) -> None:
    """Writes bias + the sum of rows [M, K] @ weights [K, H] over all pairs to `out` [M, H]."""
    # Autocast leaves products with an `out` alone.
    total = bias
    for values, weight in zip(rows, weights, strict=True):
        if total is None:
            torch.mm(values, weight, out=out)
        else:
            torch.addmm(total, values, weight, out=out)
        total = out


def add_product(a: Tensor, b: Tensor, total: Tensor) -> None:
    """Adds a.T @ b, of a [M, K] and b [M, H], to `total` [K, H]."""
    total += torch.mm(a.t(), b, out=a.new_empty(total.shape))


def add_sum(values: Tensor, total: Tensor) -> None:
    """Adds the sum over rows of values [M, H] to `total` [H]."""
    total += values.sum(0, dtype=total.dtype)
