"""Launches that are counted instead of started, on tensors without data, for the cost model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from bigtrk.models.edges.work import Work

Note = Callable[[Work], None]
_NOTE: ContextVar[Note | None] = ContextVar("note", default=None)


@contextmanager
def counting(note: Note) -> Iterator[None]:
    """Has passes over meta tensors computed as on a GPU: each launch is noted, and not started."""
    before = _NOTE.set(note)
    try:
        yield
    finally:
        _NOTE.reset(before)


def counts(device: torch.device) -> bool:
    """Says whether launches on `device` are counted."""
    return device.type == "meta" and _NOTE.get() is not None


def as_on_gpu(device: torch.device) -> bool:
    """Says whether `device` is a GPU, or stands for one while launches are counted."""
    return device.type == "cuda" or counts(device)


def note(work: Work) -> None:
    """Notes a launch; only where they are counted."""
    noted = _NOTE.get()
    assert noted is not None, "launches are not counted here"
    noted(work)
