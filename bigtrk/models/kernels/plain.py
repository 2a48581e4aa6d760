"""The passes over edges in plain torch: for every device and type, and the other forms' oracle.

Shapes: M rows of H features, N nodes.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.aggregation import accumulable

EPS = 1e-5  # torch's own


class Ends(NamedTuple):
    """Node rows and the two ends of each edge: of_source, of_destination [N, H] (float32 at
    least), source, destination [M].
    """

    of_source: Tensor
    of_destination: Tensor
    source: Tensor
    destination: Tensor

    def summed(self) -> Tensor:
        """What both ends add to each edge: [M, H]."""
        rows = self.of_source.index_select(0, self.source)
        return rows.add_(self.of_destination.index_select(0, self.destination))


def total(values: Tensor, ends: Ends | None) -> Tensor:
    """Values + both ends: [M, H], float32 at least."""
    return accumulable(values) if ends is None else ends.summed().add_(values)


def norm_relu(z: Tensor, ends: Ends | None) -> Tensor:
    """LayerNorm and ReLU of z + both ends: [M, H] -> [M, H] in the type of z."""
    values = total(z, ends)
    return layer_norm(values, values.shape[-1:]).relu_().to(z.dtype)


def norm_relu_backward(grad: Tensor, z: Tensor, ends: Ends | None) -> Tensor:
    """The gradient of `norm_relu`'s sum, from that of its result: [M, H] -> [M, H]."""
    values = total(z, ends)
    centred = values - values.mean(dim=1, keepdim=True)
    rstd = centred.square().mean(dim=1, keepdim=True).add_(EPS).rsqrt_()
    normal = centred.mul_(rstd)
    grad = accumulable(grad) * (normal > 0)
    along = (grad * normal).mean(dim=1, keepdim=True)
    result = (grad - grad.mean(dim=1, keepdim=True)).sub_(normal.mul_(along)).mul_(rstd)
    return result.to(z.dtype)


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None) -> Tensor:
    """(grad + both ends) where e > 0: [M, H] -> [M, H] in the type of e."""
    return torch.where(e > 0, total(grad, ends), 0).to(e.dtype)
