"""Mends Triton's interpreter for bfloat16, for which numpy has no type, and quickens it."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch


def _widened(bits: Any) -> Any:
    """bfloat16 in the interpreter's uint16 -> float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _rounded(values: Any) -> Any:
    """float32 -> bfloat16 in uint16, to nearest as a GPU does; the interpreter cuts bits off."""
    made = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
    return made.view(torch.int16).numpy().view(np.uint16)


@contextmanager
def mended() -> Iterator[None]:
    """Has the interpreter round to bfloat16 as GPUs do, and multiply bfloat16 as what it is."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        kinds = source.dtype.scalar, target.scalar
        if kinds == (tl.float32, tl.bfloat16):
            return TensorHandle(_rounded(source.data), tl.bfloat16)
        return cast(self, source, target)

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:
            a, b = (TensorHandle(_widened(one.data), tl.float32) for one in (a, b))
        return dot(self, a, b, *others)

    with (
        patch.object(InterpreterBuilder, "cast_impl", cast_impl),
        patch.object(InterpreterBuilder, "create_dot", create_dot),
    ):
        yield


@contextmanager
def remembered() -> Iterator[None]:
    """Has the interpreter list the functions of Triton's language once. It does so in every call of
    a function otherwise, which takes a third of its time.
    """
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    listed: dict[Any, list[str]] = {}

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        if package not in listed:
            members = inspect.getmembers(package)
            listed[package] = [name for name, member in members if is_builtin(member)]
        for name in listed[package]:
            if is_builtin(member := getattr(package, name)):
                interpreter._patch_attr(package, name, member, builder, scope)

    with patch.object(interpreter, "_patch_builtin", patch_builtin):
        yield
