"""The passes over edges in Triton; float32 and bfloat16 on GPUs.

An end of an edge that is no node reads as NaN, and nothing outside of a tensor is read: an error
could only be raised by waiting for the device, in every pass. The loss is then NaN, which stops a
run.
"""

import os
import shutil
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from bigtrk.models.kernels.plain import Ends

TYPES = torch.float32, torch.bfloat16
# Features per program. Compiled for an H100, each of its 128 threads then needs at most 60
# registers and reads 16 bytes at a time; with twice as many features up to 128 registers.
TILE = 2048


@cache
def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these kernels compute rows of `dtype` on `device`."""
    return device.type == "cuda" and dtype in TYPES and _installed()


def _installed() -> bool:
    """Triton comes with torch for GPUs, and compiles its launchers with a C compiler."""
    compilers = os.environ.get("CC", ""), "gcc", "clang"
    return find_spec("triton") is not None and any(map(shutil.which, compilers))


def norm_relu(z: Tensor, ends: Ends | None, out: Tensor | None = None) -> Tensor:
    """As plain.norm_relu; into `out` where given, which may be `z`."""
    return _call("norm_relu", [z], ends, out)


def norm_relu_backward(
    grad: Tensor, z: Tensor, ends: Ends | None, out: Tensor | None = None
) -> Tensor:
    """As plain.norm_relu_backward; into `out` where given, which may be `grad` or `z`."""
    return _call("norm_relu_backward", [grad, z], ends, out)


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor | None = None) -> Tensor:
    """As plain.relu_backward; into `out` where given, which may be `grad` or `e`."""
    return _call("relu_backward", [grad, e], ends, out)


def _call(name: str, rows: list[Tensor], ends: Ends | None, out: Tensor | None) -> Tensor:
    # Imported here, since torch for CPUs has no Triton.
    from bigtrk.models.kernels import triton_kernels

    out = torch.empty_like(rows[-1]) if out is None else out
    tensors = [*rows, *(ends or [None] * 4), out]
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors), name
    n_rows, hidden = out.shape
    n_nodes = 0 if ends is None else len(ends.of_source)
    width = 1 << (hidden - 1).bit_length()
    height = max(1, TILE // width)
    kernel = getattr(triton_kernels, name)[(-(-n_rows // height),)]
    with torch.cuda.device_of(out):  # Triton starts on the current device
        kernel(*tensors, n_rows, n_nodes, hidden=hidden, height=height, width=width)
    return out
