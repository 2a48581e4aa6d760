"""Mends Triton's interpreter, which computes in numpy's types, and quickens it."""

from collections.abc import Callable, Iterator
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


def tf32(values: Any, half: int) -> Any:
    """float32 -> tf32 with 11 binary digits. half: what is added before the others are cut off."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(half)) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32x3(a: Any, b: Any) -> Any:
    """Multiplies float32 [..., K] by [K, ...] as Triton does with "tf32x3": a processor for tf32
    adds up eight products at a time, and cuts off what a float32 does not hold.
    """
    large, total = [tf32(one, 0x1000) for one in (a, b)], np.zeros((), np.float32)
    small = [tf32(one - of_one, 0) for one, of_one in zip((a, b), large, strict=True)]
    for left, right in ((small[0], large[1]), (large[0], small[1]), (large[0], large[1])):
        for k in range(0, a.shape[-1], 8):
            part = left[:, k : k + 8].astype(np.float64) @ right[k : k + 8].astype(np.float64)
            exact = total + part
            total = exact.astype(np.float32)
            above = np.abs(total) > np.abs(exact)
            total = np.where(above, np.nextafter(total, np.float32(0)), total)
        if right is not large[1] or left is not large[0]:
            total = np.where(np.isnan(total), np.float32(0), total)
    return total


@contextmanager
def mended() -> Iterator[None]:
    """Has the interpreter round to bfloat16 as GPUs do, and multiply bfloat16 as what it is, and
    float32 as three products of tf32.
    """
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
        elif a.dtype.scalar == tl.float32:
            assert others[1].name == "TF32x3", "no other product of float32 is as exact"
            return TensorHandle(tf32x3(a.data, b.data) + others[0].data, tl.float32)
        return dot(self, a, b, *others)

    with (
        patch.object(InterpreterBuilder, "cast_impl", cast_impl),
        patch.object(InterpreterBuilder, "create_dot", create_dot),
    ):
        yield


@contextmanager
def remembered() -> Iterator[None]:
    """Has the interpreter change Triton's language once in a kernel, not in every call of a
    function, and describe types and tensors of one kind once: that took half of its time.
    """
    from triton.language import core, standard
    from triton.runtime import interpreter

    change, scopes = interpreter._patch_lang, list[Any]()
    change(standard.sum.fn)  # that of Triton's own functions, which it never undoes

    def patch_lang(function: Any) -> Any:
        if not scopes or not scopes[-1]._changes:  # the end of a kernel undoes its own
            scopes[:] = [change(function)]
        return scopes[-1]

    as_numpy, known = interpreter._get_np_dtype, dict[str, Any]()

    def get_np_dtype(kind: Any) -> Any:
        return known.get(kind.name) or known.setdefault(kind.name, as_numpy(kind))

    tensor, block = core.tensor, core.block_type
    with (
        patch.object(interpreter, "_get_np_dtype", get_np_dtype),
        patch.object(interpreter, "_patch_lang", patch_lang),
        patch.object(tensor, "__init__", _once(tensor.__init__, lambda _, kind: kind.name)),
        patch.object(block, "__init__", _once(block.__init__, lambda of, shape: (of.name, *shape))),
    ):
        yield


def _once(init: Any, key: Callable[[Any, Any], Any]) -> Any:
    """Copies what `init` made of the same key before. The first argument of a tensor is its own."""
    made: dict[Any, dict[str, Any]] = {}

    def copied(self: Any, first: Any, second: Any) -> None:
        if (found := key(first, second)) not in made:
            init(self, first, second)
            made[found] = {name: value for name, value in vars(self).items() if name != "handle"}
        vars(self).update(made[found])
        self.handle = first

    return copied
