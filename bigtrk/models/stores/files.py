"""A store in files of a local disk, for events whose edges exceed the memory."""

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.disk.local_files import PAGE, UnnamedFile, UnnamedFiles, padded
from bigtrk.models.stores.streamed import Mover, Place, StreamedStore

# Several blocks are under way at once, so that a disk is kept busy by blocks of this size.
BLOCK_BYTES = 2**22
# Threads that move blocks: as many streams as a backward pass reads, and the one it writes.
_MOVERS = 6


@dataclass(frozen=True)
class FilePlace(Place):
    """Rows in a file."""

    file: UnnamedFile = field(compare=False)


@dataclass(frozen=True)
class _Moving:
    """Blocks that threads move."""

    moves: Sequence[Future[None]]

    def wait(self) -> None:
        """Returns when all of them are moved.

        Raises:
            RankError: one cannot be read or written.
        """
        for move in self.moves:
            move.result()


class FileStore(StreamedStore):
    """Keeps rows in memory while they take up to `memory` bytes, then in files of `folder`, which
    an `option` named; freed files are used again.
    """

    def __init__(self, folder: Path, memory: float = 0.0, option: str = "training.spill") -> None:
        super().__init__(BLOCK_BYTES)
        self.files, self._memory = UnnamedFiles(folder, option), memory

    def new(
        self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> FilePlace | Tensor:
        """Makes room in memory, or else in a file.

        Raises:
            RankError: the folder is full, or is no folder to write in.
        """
        if n_rows * width * dtype.itemsize <= self._memory:
            return self._in_memory(torch.empty(n_rows, width, dtype=dtype, device=device))
        with self.files.errors("no room for the edges there"):
            file = self.files.take(padded(n_rows * width * dtype.itemsize))
        place = FilePlace(n_rows, width, dtype, device, file)
        self.files.take_back_after(place, file)
        return place

    def _in_memory(self, rows: Tensor) -> Tensor:
        """Counts rows, as long as they are referred to."""
        self._memory -= rows.nbytes
        weakref.finalize(rows, self._give_back, rows.nbytes)
        return rows

    def _give_back(self, n_bytes: int) -> None:
        self._memory += n_bytes

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        memory = mmap.mmap(-1, max(padded(n_rows * place.row_bytes), PAGE))
        memory.madvise(mmap.MADV_HUGEPAGE)
        rows = torch.frombuffer(memory, dtype=place.dtype)
        return rows[: n_rows * place.width].view(n_rows, place.width)

    @contextmanager
    def mover(self) -> Iterator[Mover]:
        """Moves each block in a thread of its own."""
        with ThreadPoolExecutor(_MOVERS) as pool:

            def move(blocks: Sequence[tuple[FilePlace, Tensor]], rows: slice, out: bool) -> _Moving:
                moves = [pool.submit(self._move, *one, rows, out) for one in blocks]
                return _Moving(moves)

            yield move

    def _move(self, place: FilePlace, block: Tensor, rows: slice, out: bool) -> None:
        start, length = rows.start * place.row_bytes, padded(block.nbytes)
        # Whole pages: the buffer and the file have room for those of the last block.
        pages = memoryview((ctypes.c_char * length).from_address(block.data_ptr()))
        with self.files.errors("edges cannot be written" if out else "edges cannot be read"):
            place.file.move(os.pwritev if out else os.preadv, pages, start)
