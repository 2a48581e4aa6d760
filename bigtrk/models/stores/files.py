"""A store in files of a local disk, for events whose edges exceed the memory.

The files have no name, so they are gone with the process, however it ends. They are read and
written past the file system's cache where it allows that: pages there would count as memory of a
job, and push out what it needs.
"""

import ctypes
import fcntl
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.errors import RankError, reason
from bigtrk.models.stores.streamed import Place, StreamedStore

# Several blocks are under way at once, so that a disk is kept busy by blocks of this size.
BLOCK_BYTES = 2**22
# Direct reads and writes begin and end at multiples of this.
_PAGE = 4096


@dataclass
class SpillFile:
    """An open file without a name, of `size` bytes that are its own; direct: its reads and writes
    pass the file system's cache by.
    """

    handle: int
    direct: bool
    size: int = 0

    def grow(self, size: int) -> None:
        """Reserves room. Where a file system cannot, the C library writes bytes, through the cache:
        a direct file would refuse them.
        """
        flags = fcntl.fcntl(self.handle, fcntl.F_GETFL)
        fcntl.fcntl(self.handle, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        try:
            os.posix_fallocate(self.handle, 0, size)
        finally:
            fcntl.fcntl(self.handle, fcntl.F_SETFL, flags)
        self.size = size

    def move(self, call: Callable[..., int], pages: memoryview, start: int) -> None:
        """Reads or writes whole pages from byte `start` on, by a `call` that may do a part."""
        done = 0
        while done < len(pages):
            moved = call(self.handle, [pages[done:]], start + done)
            if moved == 0:
                raise OSError("the file ends early")
            done += moved
        if not self.direct:
            os.posix_fadvise(self.handle, start, len(pages), os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class FilePlace(Place):
    """Rows in a file."""

    file: SpillFile = field(compare=False)


class FileStore(StreamedStore):
    """Keeps rows in memory while they take up to `memory` bytes, then in files of `folder`, which
    an `option` named; freed files are used again.
    """

    def __init__(self, folder: Path, memory: float = 0.0, option: str = "training.spill") -> None:
        super().__init__(BLOCK_BYTES)
        self.folder, self._memory, self._option = folder, memory, option
        self._unused: list[SpillFile] = []

    def new(
        self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> FilePlace | Tensor:
        """Makes room in memory, or else in a file.

        Raises:
            RankError: the folder is full, or is no folder to write in.
        """
        if n_rows * width * dtype.itemsize <= self._memory:
            return self._in_memory(torch.empty(n_rows, width, dtype=dtype, device=device))
        with self._errors("no room for the edges there"):
            file = self._file(padded(n_rows * width * dtype.itemsize))
        place = FilePlace(n_rows, width, dtype, device, file)
        weakref.finalize(place, self._unused.append, file)
        return place

    def _in_memory(self, rows: Tensor) -> Tensor:
        """Counts rows, as long as they are referred to."""
        self._memory -= rows.nbytes
        weakref.finalize(rows, self._give_back, rows.nbytes)
        return rows

    def _give_back(self, n_bytes: int) -> None:
        self._memory += n_bytes

    def _file(self, size: int) -> SpillFile:
        """Takes the smallest unused file that is large enough, or else the largest, and enlarges
        it.
        """
        self._unused.sort(key=lambda file: file.size)
        fitting = [file for file in self._unused if file.size >= size]
        file = (fitting or self._unused[-1:] or [open_unnamed(self.folder)])[0]
        if file.size < size:
            file.grow(size)
        if file in self._unused:
            self._unused.remove(file)
        return file

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        memory = mmap.mmap(-1, max(padded(n_rows * place.row_bytes), _PAGE))
        memory.madvise(mmap.MADV_HUGEPAGE)
        rows = torch.frombuffer(memory, dtype=place.dtype)
        return rows[: n_rows * place.width].view(n_rows, place.width)

    def ready(self) -> None:
        """Marks nothing: a CPU has computed what it was asked to."""

    def move(
        self,
        ready: None,  # noqa: ARG002  # as of the other stores
        place: Place,
        rows: slice,
        block: Tensor,
        *,
        out: bool,
    ) -> None:
        assert isinstance(place, FilePlace)
        start, length = rows.start * place.row_bytes, padded(block.nbytes)
        # Whole pages: the buffer and the file have room for those of the last block.
        pages = memoryview((ctypes.c_char * length).from_address(block.data_ptr()))
        with self._errors("edges cannot be written" if out else "edges cannot be read"):
            place.file.move(os.pwritev if out else os.preadv, pages, start)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RankError(
                f"{self._option}={self.folder}: {what} ({reason(error)}); name a folder of a local "
                f"disk with more free space"
            ) from None


def open_unnamed(folder: Path) -> SpillFile:
    """Opens a new file without a name in `folder`."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as opened:
        handle = os.dup(opened.fileno())
    file = SpillFile(handle, _set_direct(handle))
    weakref.finalize(file, os.close, handle)
    return file


def _set_direct(handle: int) -> bool:
    """Has reads and writes pass the cache by, where the file system knows how (tmpfs does not)."""
    try:
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True


def padded(n_bytes: int) -> int:
    """Returns the bytes of the whole pages that so many bytes take."""
    return -(-n_bytes // _PAGE) * _PAGE
