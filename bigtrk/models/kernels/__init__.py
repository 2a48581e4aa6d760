"""The passes over edges and the matrix products between them, in the fastest form for a device."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from bigtrk.models.kernels import native, plain, triton_passes
from bigtrk.models.kernels.plain import Ends


class Passes(Protocol):
    """The passes in one form; `plain` says what they compute."""

    def norm_relu(self, z: Tensor, ends: Ends | None, out: Tensor, rstd: Tensor) -> None: ...

    def norm_relu_backward(
        self, grad: Tensor, normal: Tensor, rstd: Tensor, out: Tensor
    ) -> None: ...

    def relu_backward(self, grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor) -> None: ...

    def add_to_nodes(self, values: Tensor, ends: Ends) -> None: ...

    def add_rows(self, values: Tensor, total: Tensor) -> None: ...

    def multiply(
        self, rows: Sequence[Tensor], weights: Sequence[Tensor], bias: Tensor | None, out: Tensor
    ) -> None: ...

    def add_product(self, a: Tensor, b: Tensor, total: Tensor) -> None: ...

    def add_sum(self, values: Tensor, total: Tensor) -> None: ...


def passes_for(device: torch.device, dtype: torch.dtype) -> Passes:
    """Chooses the fastest passes over rows of `dtype` on `device`."""
    if native.usable(device, dtype):
        return native
    if triton_passes.usable(device, dtype):
        return triton_passes
    return plain
