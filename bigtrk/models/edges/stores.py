"""The stores of edge states: they keep rows [E, H] between layers, and passes read them from there.

A pass goes through the rows block by block. In memory there is one block, of all rows. A streamed
store keeps rows off the device, on the host or in files: while the pass computes one block, the
store reads blocks ahead and writes finished ones.

Shapes: E edges, H = hidden, M rows of a block.
"""

import ctypes
import mmap
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bigtrk.disk.local_files import PAGE, UnnamedFile, UnnamedFiles, padded
from bigtrk.models.edges.states import HOST_BYTES, Block, EdgeStore

DEPTH = 3  # buffers of each stream: one block in use, others being read ahead or written
_FEWEST_ROWS = 2048  # rows of a block: whole pages of 4,096 bytes for any width


@dataclass(frozen=True)
class Place:
    """Describes stored rows [n_rows, width] of `dtype`, which passes on `device` use."""

    n_rows: int
    width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.width

    @property
    def row_bytes(self) -> int:
        return self.width * self.dtype.itemsize


# Makes later computations wait until rows have been moved.
Wait = Callable[[], None]
# Starts to read rows of places into blocks or, if `out`, to write blocks to places, after the
# computations so far. Arguments: (places and their blocks, rows, out).
Mover = Callable[[Sequence[tuple[Any, Tensor]], slice, bool], Wait]


def there() -> None:
    """Returns at once: a `Wait` for rows that have arrived."""


class StreamedStore(EdgeStore, ABC):
    """Keeps rows off the device; moves about `block_bytes` of each tensor at a time."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._free: dict[tuple[Any, ...], list[Tensor]] = {}

    @abstractmethod
    def buffer(self, place: Place, n_rows: int) -> Tensor:
        """Allocates memory for a block of `place`'s rows: [n_rows, width]."""

    @abstractmethod
    def mover(self) -> AbstractContextManager[Mover]:
        """Yields the function that moves a pass's blocks; at the end waits for all moves."""

    def blocks(
        self, n_rows: int, read: Sequence[Place | Tensor], made: Sequence[Place | Tensor]
    ) -> Iterator[Block]:
        """Yields the blocks in order; their tensors are valid until the next one is requested."""
        step = max((self._block_rows(rows) for rows in (*read, *made)), default=n_rows or 1)
        starts = range(0, n_rows, step)
        slices = [slice(start, min(start + step, n_rows)) for start in starts]
        with ExitStack() as stack:
            ahead = [self._stream(stack, rows, step) for rows in read]
            behind = [self._stream(stack, rows, step) for rows in made]
            mover = stack.enter_context(self.mover())

            def move(i: int, *, out: bool) -> Wait:
                """Starts to read block i or, if `out`, to write it."""
                streams = (one for one in (behind if out else ahead) if one.buffers)
                blocks = [(one.rows, one.block(i, slices[i])) for one in streams]
                return mover(blocks, slices[i], out)

            coming = [move(i, out=False) for i in range(min(DEPTH - 1, len(slices)))]
            leaving: list[Wait] = []
            for i, rows in enumerate(slices):
                if i + DEPTH - 1 < len(slices):
                    coming.append(move(i + DEPTH - 1, out=False))
                coming[i]()
                if i >= DEPTH:
                    leaving[i - DEPTH]()
                of_block = ([one.block(i, rows) for one in streams] for streams in (ahead, behind))
                yield Block(rows, *of_block)
                leaving.append(move(i, out=True))
            for wait in leaving[-DEPTH:]:
                wait()

    def _block_rows(self, rows: Place | Tensor) -> int:
        """Returns the rows of a block: a power of two, as for chunks, in whole pages."""
        row_bytes = rows.shape[1] * rows.dtype.itemsize
        return max(_FEWEST_ROWS, 1 << max(1, self._block_bytes // row_bytes).bit_length() - 1)

    def _stream(self, stack: ExitStack, rows: Place | Tensor, n_rows: int) -> "_Stream":
        """Takes buffers for the blocks of `rows` until the pass ends; a tensor needs none."""
        if isinstance(rows, Tensor):
            return _Stream(rows)
        free = self._free.setdefault((n_rows, rows.width, rows.dtype, rows.device), [])
        taken = [free.pop() if free else self.buffer(rows, n_rows) for _ in range(DEPTH)]
        stack.callback(free.extend, taken)
        return _Stream(rows, taken)


class _Stream(NamedTuple):
    """Rows of a pass and, unless they are a tensor, the buffers that their blocks use in turn."""

    rows: Place | Tensor
    buffers: Sequence[Tensor] = ()

    def block(self, i: int, rows: slice) -> Tensor:
        if isinstance(self.rows, Tensor):
            return self.rows[rows]
        return self.buffers[i % DEPTH][: rows.stop - rows.start]


# torch rounds pinned memory up to powers of two: whole tensors of 5.6 GB would take 8.6.
PIECE_BYTES = 2**27


@dataclass(frozen=True)
class HostPlace(Place):
    """Rows in the host's memory (pinned for a GPU), in pieces of `piece_rows`, the last shorter."""

    piece_rows: int
    pieces: Sequence[Tensor] = field(compare=False)

    def parts(self, rows: slice, block: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields (part of a piece, part of `block`) for each piece that holds some of `rows`."""
        for number, piece in enumerate(self.pieces):
            first = number * self.piece_rows
            start, stop = max(rows.start, first), min(rows.stop, first + len(piece))
            if start < stop:
                part = block[start - rows.start : stop - rows.start]
                yield piece[start - first : stop - first], part


class HostStore(StreamedStore):
    """Keeps rows in the host's memory; a GPU moves blocks in two CUDA streams, one each way."""

    def __init__(self) -> None:
        super().__init__(HOST_BYTES)

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> HostPlace:
        """Allocates rows in the host's memory, in pieces."""
        most, pinned = PIECE_BYTES // (width * dtype.itemsize), device.type == "cuda"
        pieces = [
            torch.empty(min(most, n_rows - start), width, dtype=dtype, pin_memory=pinned)
            for start in range(0, n_rows, most)
        ]
        return HostPlace(n_rows, width, dtype, device, most, pieces)

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        return torch.empty(n_rows, place.width, dtype=place.dtype, device=place.device)

    @contextmanager
    def mover(self) -> Iterator[Mover]:
        """Yields a function that copies blocks: on a GPU in two further CUDA streams."""
        if not torch.cuda.is_available():
            yield _copy
            return
        coming, leaving = _copy_streams(torch.cuda.current_device())

        def move(blocks: Sequence[tuple[HostPlace, Tensor]], rows: slice, out: bool) -> Wait:
            beside = leaving if out else coming
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                _copy(blocks, rows, out)
                event = beside.record_event()
            return lambda: torch.cuda.current_stream().wait_event(event)

        try:
            yield move
        finally:
            # Buffers are used again in the current stream, which thus must not be ahead of these.
            for beside in (coming, leaving):
                torch.cuda.current_stream().wait_stream(beside)


@cache
def _copy_streams(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Returns this process's CUDA streams for blocks: to the GPU, and from it."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _copy(blocks: Sequence[tuple[HostPlace, Tensor]], rows: slice, out: bool) -> Wait:
    for place, block in blocks:
        for piece, part in place.parts(rows, block):
            target, source = (piece, part) if out else (part, piece)
            target.copy_(source, non_blocking=True)
    return there


def _await_all(moves: Sequence[Future[None]]) -> None:
    for move in moves:
        move.result()


BLOCK_BYTES = 2**22  # several blocks of this size keep a disk busy
_MOVERS = 6  # threads that move blocks: one for each stream of a backward pass


@dataclass(frozen=True)
class FilePlace(Place):
    """Describes rows in a file."""

    file: UnnamedFile = field(compare=False)


class FileStore(StreamedStore):
    """Keeps rows in memory up to `memory` bytes, then in files of `folder`, which are reused."""

    def __init__(self, folder: Path, memory: float = 0.0, option: str = "training.spill") -> None:
        super().__init__(BLOCK_BYTES)
        self.files, self._memory = UnnamedFiles(folder, option), memory

    def new(
        self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> FilePlace | Tensor:
        """Allocates rows in memory or in a file; RankError if the folder is full or unusable."""
        if n_rows * width * dtype.itemsize <= self._memory:
            rows = torch.empty(n_rows, width, dtype=dtype, device=device)
            self._memory -= rows.nbytes
            weakref.finalize(rows, self._give_back, rows.nbytes)
            return rows
        with self.files.errors("no room for the edges there"):
            file = self.files.take(padded(n_rows * width * dtype.itemsize))
        place = FilePlace(n_rows, width, dtype, device, file)
        self.files.take_back_after(place, file)
        return place

    def _give_back(self, n_bytes: int) -> None:
        self._memory += n_bytes

    def buffer(self, place: Place, n_rows: int) -> Tensor:
        memory = mmap.mmap(-1, max(padded(n_rows * place.row_bytes), PAGE))
        memory.madvise(mmap.MADV_HUGEPAGE)
        rows = torch.frombuffer(memory, dtype=place.dtype)
        return rows[: n_rows * place.width].view(n_rows, place.width)

    @contextmanager
    def mover(self) -> Iterator[Mover]:
        """Yields a function that moves blocks in threads; its `Wait` raises a thread's error."""
        with ThreadPoolExecutor(_MOVERS) as pool:

            def move(blocks: Sequence[tuple[FilePlace, Tensor]], rows: slice, out: bool) -> Wait:
                moves = [pool.submit(self._move, *one, rows, out) for one in blocks]
                return partial(_await_all, moves)

            yield move

    def _move(self, place: FilePlace, block: Tensor, rows: slice, out: bool) -> None:
        start, length = rows.start * place.row_bytes, padded(block.nbytes)
        # Whole pages: the buffer and the file have room for those of the last block.
        pages = memoryview((ctypes.c_char * length).from_address(block.data_ptr()))
        with self.files.errors("edges cannot be written" if out else "edges cannot be read"):
            place.file.move(os.pwritev if out else os.preadv, pages, start)
