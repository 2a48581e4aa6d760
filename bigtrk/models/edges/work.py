"""Launches passes on GPUs; on tensors without data it counts the launches instead.

The bytes that a launch moves are those of its tensors: what it reads again is in the L2, mostly.
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
    """The operations and bytes of a launch. bf16: its products are of bfloat16."""

    bf16: bool
    flops: float
    moved: float


Note = Callable[[Work], None]
_NOTE: ContextVar[Note | None] = ContextVar("note", default=None)


@contextmanager
def counting(note: Note) -> Iterator[None]:
    """Computes passes over meta tensors as on a GPU: each launch is noted, and not started."""
    before = _NOTE.set(note)
    try:
        yield
    finally:
        _NOTE.reset(before)


def counts(device: torch.device) -> bool:
    """Whether launches on `device` are counted."""
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
    """Starts a kernel, whose file and name are given, on the device of a tensor, or notes it."""
    note = _NOTE.get()
    if of.is_meta and note is not None:
        read = (one for one in tree_leaves(arguments) if isinstance(one, Tensor))
        note(Work(named.get("bf16", False), flops, sum(one.nbytes for one in read)))
        return
    file, name = kernel
    found = getattr(import_module(f"bigtrk.models.edges.triton_{file}"), name)
    with torch.cuda.device_of(of):
        found[grid](*arguments, **named)
