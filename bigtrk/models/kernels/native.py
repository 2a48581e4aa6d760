"""The passes over edges in C, compiled once per machine; float32 and bfloat16 on CPUs.

They are registered as torch operators, so that `bigtrk plan` counts their memory and time.
"""

import ctypes
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.models.kernels.plain import Ends
from bigtrk.native_code import compiled

_SOURCE, _PASSES = (Path(__file__).with_name(name) for name in ("native.c", "passes.h"))
CODE = "kernels", _SOURCE, (_PASSES,), ("-fno-math-errno", "-fno-trapping-math")
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
_ENDS = "Tensor? of_source, Tensor? of_destination, Tensor? source, Tensor? destination"
# The C functions take the same arguments in the same order, then rows and columns.
_OPERATORS = {
    "norm_relu": f"Tensor(a!) z, {_ENDS}, Tensor(b!) out, Tensor(c!) rstd",
    "norm_relu_backward": "Tensor grad, Tensor normal, Tensor rstd, Tensor(a!) out",
    "relu_backward": f"Tensor grad, Tensor e, {_ENDS}, Tensor(a!) out",
    "add_to_nodes": "Tensor values, Tensor source, Tensor destination, "
    "Tensor(a!) of_source, Tensor(b!) of_destination",
    "add_rows": "Tensor values, Tensor(a!) total",
}


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Says whether these passes compute rows of `dtype` on `device`, or count them on "meta"."""
    return device.type in ("cpu", "meta") and dtype in NAMES and library() is not None


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled passes; None where they cannot be compiled or loaded."""
    return compiled(*CODE)


def norm_relu(z: Tensor, ends: Ends | None, out: Tensor, rstd: Tensor) -> None:
    """Computes plain.norm_relu."""
    torch.ops.bigtrk.norm_relu(z, *_unpacked(ends), out, rstd)


def norm_relu_backward(grad: Tensor, normal: Tensor, rstd: Tensor, out: Tensor) -> None:
    """Computes plain.norm_relu_backward."""
    torch.ops.bigtrk.norm_relu_backward(grad, normal, rstd, out)


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor) -> None:
    """Computes plain.relu_backward."""
    torch.ops.bigtrk.relu_backward(grad, e, *_unpacked(ends), out)


def add_to_nodes(values: Tensor, ends: Ends) -> None:
    """Computes plain.add_to_nodes."""
    sums = (ends.of_source, ends.of_destination)
    torch.ops.bigtrk.add_to_nodes(values, ends.source, ends.destination, *sums)


def add_rows(values: Tensor, total: Tensor) -> None:
    """Computes plain.add_rows."""
    torch.ops.bigtrk.add_rows(values, total)


def _unpacked(ends: Ends | None) -> tuple[Tensor | None, ...]:
    return (None, None, None, None) if ends is None else ends[:4]


def _call(name: str, *tensors: Tensor | None) -> None:
    rows = tensors[0]
    assert rows is not None
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors), name
    call = getattr(library(), f"{name}_{NAMES[rows.dtype]}")
    pointers = [ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors]
    call(*pointers, *(ctypes.c_long(size) for size in rows.shape))


def _call_without_data(*_: Tensor | None) -> None:
    """Does nothing for tensors that have only shapes: what is written to has its shape already."""


_OPERATORS_OF_TORCH = torch.library.Library("bigtrk", "FRAGMENT")  # they last as long as it does
for _name, _arguments in _OPERATORS.items():
    _OPERATORS_OF_TORCH.define(f"{_name}({_arguments}) -> ()")
    _OPERATORS_OF_TORCH.impl(_name, partial(_call, _name), "CPU")
    _OPERATORS_OF_TORCH.impl(_name, _call_without_data, "Meta")
