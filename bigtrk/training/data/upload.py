"""The way of what is read ahead to an accelerator, beside what that computes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def uploaded(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns a tensor of the host on `device`; an accelerator fetches it from pinned memory in the
    current stream, and nobody waits for it.
    """
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True)
class Read(Generic[Item]):
    """An item that a thread has read, and the event after which it is on a GPU, if there is one."""

    found: Item
    there: torch.cuda.Event | None


class Lane:
    """A stream of an accelerator for a thread that reads ahead; on a CPU nothing is beside."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _stream_beside(device) if device.type == "cuda" else None

    def read(self, call: Callable[[], Item]) -> Read[Item]:
        """Calls `call`, with what it starts on the accelerator in this stream."""
        if self._stream is None:
            return Read(call(), None)
        with torch.cuda.stream(self._stream):
            return Read(call(), self._stream.record_event())

    def hand_over(self, read: Read[Item]) -> Item:
        """Gives what was read to the current stream, which computes no sooner than it is there."""
        if read.there is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(read.there)
            for tensor in tensors_in(read.found):
                if tensor.is_cuda:  # its memory is this lane's, which must know who else reads it
                    tensor.record_stream(current)
        return read.found


@cache
def _stream_beside(device: torch.device) -> torch.cuda.Stream:
    """Returns the one stream of a process in which what is read travels to a GPU: torch keeps the
    memory of each apart, 0.3 GB on an H200 where each epoch of 300,000 edges had a new one.
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
