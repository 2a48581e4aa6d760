"""Keeps input tensors of edges in files on a local disk, when memory has no room for them."""

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from bigtrk.disk.local_files import UnnamedFile, UnnamedFiles, padded

Item = TypeVar("Item")
# Smaller tensors stay in memory, where blocks of edges need more space anyway.
_LEAST_BYTES = 2**21
_WRITTEN_BYTES = 2**24  # at a time


def tensors_in(found: Any) -> Iterator[Tensor]:
    """Yields all tensors in a tensor, dataclass or sequence, at any depth."""
    if isinstance(found, Tensor):
        yield found
    elif is_dataclass(found):
        for field in fields(found):
            yield from tensors_in(getattr(found, field.name))
    elif isinstance(found, Sequence) and not isinstance(found, str):
        for item in found:
            yield from tensors_in(item)


class InputFiles:
    """Keeps input tensors in files of `folder`. option: the setting that named it, for messages."""

    def __init__(self, folder: Path, option: str) -> None:
        self._files = UnnamedFiles(folder, option)

    def moved(self, item: Item) -> Item:
        """Returns `item` (a tensor or a dataclass of tensors) with its large tensors moved from
        memory to one file and mapped. Raises RankError if the folder is full or cannot be written.
        """
        memories = {
            memory.data_ptr(): memory
            for memory in (rows.untyped_storage() for rows in tensors_in(item))
            # Memory that is not torch's own, such as a mapped file, cannot be resized.
            if memory.nbytes() >= _LEAST_BYTES and memory.resizable()
        }
        if not memories:
            return item
        sizes = (padded(memory.nbytes()) for memory in memories.values())
        *starts, size = accumulate(sizes, initial=0)
        with self._files.errors("the inputs of edges cannot be written"):
            file = self._files.take(size)
            for memory, start in zip(memories.values(), starts, strict=True):
                _write(memory, file, start)
            # A private mapping: writing to a tensor changes neither the file nor other processes.
            pages = mmap.mmap(file.handle, size, access=mmap.ACCESS_COPY)
        self._files.take_back_after(pages, file)
        mapped = torch.frombuffer(pages, dtype=torch.uint8).untyped_storage()
        found: Item = _in_pages(item, mapped, dict(zip(memories, starts, strict=True)))
        return found


def _write(memory: torch.UntypedStorage, file: UnnamedFile, start: int) -> None:
    """Writes `memory` to `file` from byte `start`, through a page-aligned buffer."""
    content = memoryview((ctypes.c_char * memory.nbytes()).from_address(memory.data_ptr()))
    buffer = mmap.mmap(-1, min(_WRITTEN_BYTES, padded(memory.nbytes())))
    for done in range(0, len(content), len(buffer)):
        part = content[done : done + len(buffer)]
        buffer[: len(part)] = part
        file.move(os.pwritev, memoryview(buffer)[: padded(len(part))], start + done)


def _in_pages(item: Any, pages: torch.UntypedStorage, starts: dict[int, int]) -> Any:
    """Returns `item` as views of `pages`. starts: first byte in `pages`, by a tensor's address."""
    if isinstance(item, Tensor):
        start = starts.get(item.untyped_storage().data_ptr())
        if start is None:
            return item
        offset = start // item.itemsize + item.storage_offset()
        return torch.empty(0, dtype=item.dtype).set_(pages, offset, item.shape, item.stride())
    if is_dataclass(item) and not isinstance(item, type):
        names = [one.name for one in fields(item)]
        own = {name: _in_pages(getattr(item, name), pages, starts) for name in names}
        return replace(item, **own)
    return item
