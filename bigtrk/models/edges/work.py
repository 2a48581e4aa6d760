"""Launches kernels on GPUs; on tensors without data it only counts the launches.

A launch moves the bytes of its tensors, each once: what it reads again is mostly in the L2 cache.
Operations are those of matrix products at the rows' own width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


class Work(NamedTuple):
    """The operations (flops) and bytes (moved) of a launch. bf16: it multiplies in bfloat16."""

    bf16: bool
    flops: float
    moved: float


Note = Callable[[Work], None]
_NOTE: ContextVar[Note | None] = ContextVar("note", default=None)


@contextmanager
def counting(note: Note) -> Iterator[None]:
    """Calls `note` for each launch on meta tensors in the block, as if these were on a GPU."""
    before = _NOTE.set(note)
    try:
        yield
    finally:
        _NOTE.reset(before)


def counts(device: torch.device) -> bool:
    """Whether launches on `device` are only counted."""
    return device.type == "meta" and _NOTE.get() is not None


def as_on_gpu(device: torch.device) -> bool:
    """Whether `device` is a GPU, or stands for one while launches are counted."""
    return device.type == "cuda" or counts(device)


def launch(
    kernel: tuple[str, str],
    grid: tuple[int, ...],
    of: Tensor,
    flops: float,
    *arguments: Any,
    **named: Any,
) -> None:
    """Launches kernel (file, name) on the device of `of`; if launches are counted, notes it."""
    note = _NOTE.get()
    if of.is_meta and note is not None:
        read = (one for one in tree_leaves(arguments) if isinstance(one, Tensor))
        note(Work(named.get("bf16", False), flops, sum(one.nbytes for one in read)))
        return
    file, name = kernel
    found = getattr(import_module(f"bigtrk.models.edges.triton_{file}"), name)
    with torch.cuda.device_of(of):
        found[grid](*arguments, **named)
