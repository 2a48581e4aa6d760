"""The passes over edges and their products in C; float32 and bfloat16 on CPUs.

They are registered as torch operators, so that `bigtrk plan` counts their memory and time.
"""

import ctypes
import platform
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from bigtrk.models.protocol import Ends
from bigtrk.native_code import NATIVE, compiled

_SOURCE, _HEADER = (Path(__file__).with_name(name) for name in ("native.c", "passes.h"))
_WIDE = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()
_FLAGS = "-fno-math-errno", "-fno-trapping-math", NATIVE, *_WIDE
CODE = "kernels", _SOURCE, (_HEADER,), _FLAGS
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
_ENDS = "Tensor? of_source, Tensor? of_destination, Tensor? source, Tensor? destination"
_OPERATORS = (
    f"norm_relu(Tensor(a!) z, {_ENDS}, Tensor(b!) out, Tensor(c!) rstd)",
    "norm_relu_backward(Tensor grad, Tensor normal, Tensor rstd, Tensor(a!) out)",
    f"relu_backward(Tensor grad, Tensor e, {_ENDS}, Tensor(a!) out)",
    "add_to_nodes(Tensor values, Tensor source, Tensor destination, "
    "Tensor(a!) of_source, Tensor(b!) of_destination)",
    "multiply(Tensor[] rows, Tensor[] weights, Tensor? bias, Tensor(a!) out)",
    "add_product(Tensor a, Tensor b, Tensor(a!) total)",
    "add_sum(Tensor values, Tensor(a!) total)",
)


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether these passes compute rows of `dtype` on `device`, or count them on "meta"."""
    return device.type in ("cpu", "meta") and dtype in NAMES and library() is not None


@cache
def library() -> ctypes.CDLL | None:
    """Loads the compiled passes; None where they cannot be compiled or loaded."""
    return compiled(*CODE)


def norm_relu(z: Tensor, ends: Ends | None, out: Tensor, rstd: Tensor) -> None:
    torch.ops.bigtrk.norm_relu(z, *(ends or [None] * 4)[:4], out, rstd)


def relu_backward(grad: Tensor, e: Tensor, ends: Ends | None, out: Tensor) -> None:
    torch.ops.bigtrk.relu_backward(grad, e, *(ends or [None] * 4)[:4], out)


def add_to_nodes(values: Tensor, ends: Ends) -> None:
    torch.ops.bigtrk.add_to_nodes(values, ends.source, ends.destination, *ends[:2])


def _function(name: str, dtype: torch.dtype) -> Any:
    """Returns the C function `name` for rows of `dtype`."""
    return getattr(library(), f"{name}_{NAMES[dtype]}")


def _call(name: str, *tensors: Tensor | None) -> None:
    """Calls the C function, which takes the operator's arguments, then rows and columns."""
    rows = tensors[0]
    assert rows is not None
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors), name
    _function(name, rows.dtype)(*map(_pointer, tensors), *_longs(*rows.shape))


def _multiply(
    rows: Sequence[Tensor], weights: Sequence[Tensor], bias: Tensor | None, out: Tensor
) -> None:
    rows = [values.contiguous() for values in rows]
    assert out.is_contiguous()
    assert all(values.dtype == out.dtype for values in (*rows, *weights))
    numbers = [values.shape[1] for values in rows]
    strides = [stride for weight in weights for stride in weight.stride()]
    _function("multiply", out.dtype)(
        (ctypes.c_void_p * len(rows))(*(values.data_ptr() for values in rows)),
        (ctypes.c_void_p * len(rows))(*(weight.data_ptr() for weight in weights)),
        (ctypes.c_long * len(rows))(*numbers),
        (ctypes.c_long * len(strides))(*strides),
        ctypes.c_long(len(rows)),
        *map(_pointer, (bias, out)),
        *_longs(*out.shape),
    )


def _add_product(a: Tensor, b: Tensor, total: Tensor) -> None:
    a, b = a.contiguous(), b.contiguous()
    assert a.dtype == b.dtype
    assert total.dtype == torch.float32
    assert total.stride(1) == 1 or total.shape[1] == 1
    sizes = _longs(*a.shape, b.shape[1], total.stride(0))
    _function("add_product", a.dtype)(*map(_pointer, (a, b, total)), *sizes)


def _add_sum(values: Tensor, total: Tensor) -> None:
    assert total.dtype == torch.float32
    _call("add_sum", values.contiguous(), total)


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _longs(*sizes: int) -> list[ctypes.c_long]:
    return [ctypes.c_long(size) for size in sizes]


_OWN = {"multiply": _multiply, "add_product": _add_product, "add_sum": _add_sum}
_LIBRARY = torch.library.Library("bigtrk", "FRAGMENT")  # the operators last as long as it does
for _operator in _OPERATORS:
    _name = _LIBRARY.define(f"{_operator} -> ()").split("::")[-1]
    _LIBRARY.impl(_name, _OWN.get(_name, partial(_call, _name)), "CPU")
    _LIBRARY.impl(_name, lambda *_: None, "Meta")  # the results have their shapes already


norm_relu_backward, multiply = torch.ops.bigtrk.norm_relu_backward, torch.ops.bigtrk.multiply
add_product, add_sum = torch.ops.bigtrk.add_product, torch.ops.bigtrk.add_sum


@register_flop_formula(torch.ops.bigtrk.multiply, get_raw=True)
def _flops_of_multiply(
    rows: Sequence[Tensor], weights: Sequence[Tensor], *_: Any, **__: Any
) -> int:
    return sum(2 * a.numel() * weight.shape[1] for a, weight in zip(rows, weights, strict=True))


@register_flop_formula(torch.ops.bigtrk.add_product, get_raw=True)
def _flops_of_add_product(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    return 2 * a.numel() * b.shape[1]
