"""Uploads to an accelerator, which travel while it computes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def uploaded(tensor: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor of the host to `device`; an accelerator copies it from pinned memory in the
    current stream, without waiting.
    """
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True)
class Read(Generic[Item]):
    """An item that a thread has read, and the CUDA event that ends its upload, if any."""

    found: Item
    there: torch.cuda.Event | None


class Lane:
    """A CUDA stream for a thread that reads ahead; without effect on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _upload_stream(device) if device.type == "cuda" else None

    def read(self, call: Callable[[], Item]) -> Read[Item]:
        """Calls `call`, with what it starts on the accelerator in this stream."""
        if self._stream is None:
            return Read(call(), None)
        with torch.cuda.stream(self._stream):
            return Read(call(), self._stream.record_event())

    def hand_over(self, read: Read[Item]) -> Item:
        """Makes the current stream wait for the upload, and returns the item."""
        if read.there is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(read.there)
            for tensor in tensors_in(read.found):
                if tensor.is_cuda:  # the lane's pool must not reuse its memory too early
                    tensor.record_stream(current)
        return read.found


@cache
def _upload_stream(device: torch.device) -> torch.cuda.Stream:
    """Returns the process's one stream for uploads: torch keeps a pool of memory for each stream,
    0.3 GB on an H200 with a new one in each epoch of 300,000 edges.
    """
    return torch.cuda.Stream(device)


def tensors_in(found: Any) -> Iterator[Tensor]:
    """Yields the tensors in dataclasses and sequences."""
    if isinstance(found, Tensor):
        yield found
    elif is_dataclass(found):
        for field in fields(found):
            yield from tensors_in(getattr(found, field.name))
    elif isinstance(found, Sequence) and not isinstance(found, str):
        for item in found:
            yield from tensors_in(item)
