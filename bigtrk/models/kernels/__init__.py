"""The passes over edges between two matrix products, in the form that suits where they are."""

from types import ModuleType

import torch

from bigtrk.models.kernels import native, plain


def passes_for(device: torch.device, dtype: torch.dtype) -> ModuleType:
    """The module whose functions (plain.py) compute rows of `dtype` on `device`."""
    return native if native.usable(device, dtype) else plain
