"""Mends Triton's interpreter for bfloat16, for which numpy has no type, and quickens it."""

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
