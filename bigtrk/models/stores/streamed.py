"""Stores whose rows pass through the memory of the device in blocks.

Blocks are read ahead of their use and written behind it, while the pass computes on those between.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from bigtrk.models.stores.store import Block

# Blocks in memory of each stream: one that is used, and those that are read ahead of it or written
# behind it.
DEPTH = 3
# Blocks of so many rows are whole pages of 4,096 bytes, whatever two bytes or more a row has.
_FEWEST_ROWS = 2048


@dataclass(frozen=True)
class Place:
    """Tells where rows [n_rows, width] of `dtype` are kept, which passes on `device` use."""

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


class Moving(Protocol):
    """Rows on their way."""

    def wait(self) -> None:
        """Lets what is computed next begin no sooner than they are there."""


class _There:
    """Rows that are there already."""

    def wait(self) -> None:
        """Returns at once."""


THERE = _There()
# Starts to read rows of places into blocks, or to write them `out`, once what was asked for until
# now is computed: (places and their blocks, rows, out).
Mover = Callable[[Sequence[tuple[Any, Tensor]], slice, bool], Moving]


class StreamedStore(ABC):
    """Keeps rows in places off the device; about `block_bytes` of each are moved at once."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._free: dict[tuple[Any, ...], list[Tensor]] = {}

    @abstractmethod
    def new(
        self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> Place | Tensor:
        """Makes room for rows, as EdgeStore."""

    @abstractmethod
    def buffer(self, place: Place, n_rows: int) -> Tensor:
        """Makes memory for a block of `place`'s rows: [n_rows, width]."""

    @abstractmethod
    def mover(self) -> AbstractContextManager[Mover]:
        """Makes what moves the blocks of a pass; at its end nothing is on its way any more."""

    def blocks(
        self, n_rows: int, read: Sequence[Place | Tensor], made: Sequence[Place | Tensor]
    ) -> Iterator[Block]:
        """Yields the blocks in their order, with buffers that hold them until the next but one."""
        with ExitStack() as stack:
            step = max((self._block_rows(rows) for rows in (*read, *made)), default=n_rows or 1)
            ahead = [self._stream(stack, rows, step) for rows in read]
            behind = [self._stream(stack, rows, step) for rows in made]
            starts = range(0, n_rows, step)
            slices = [slice(start, min(start + step, n_rows)) for start in starts]
            move = stack.enter_context(self.mover())
            yield from _Pass(move, slices, ahead, behind).run()

    def _block_rows(self, rows: Place | Tensor) -> int:
        """Returns the rows of a block: a power of two, so that blocks are cut into the same chunks
        as all rows at once would be, and hold whole pages of a file.
        """
        row_bytes = rows.shape[1] * rows.dtype.itemsize
        return max(_FEWEST_ROWS, 1 << max(1, self._block_bytes // row_bytes).bit_length() - 1)

    def _stream(self, stack: ExitStack, rows: Place | Tensor, n_rows: int) -> "_Stream | Tensor":
        """Takes buffers for the blocks of a place, until the pass is over."""
        if isinstance(rows, Tensor):
            return rows
        free = self._free.setdefault((n_rows, rows.width, rows.dtype, rows.device), [])
        taken = [free.pop() if free else self.buffer(rows, n_rows) for _ in range(DEPTH)]
        stack.callback(free.extend, taken)
        return _Stream(rows, taken)


class _Stream(NamedTuple):
    """A place and the buffers that its blocks take in turn."""

    place: Place
    buffers: list[Tensor]

    def block(self, i: int, rows: slice) -> Tensor:
        return self.buffers[i % DEPTH][: rows.stop - rows.start]


@dataclass(frozen=True)
class _Pass:
    """A pass through rows that are read ahead and made behind; tensors are there already."""

    move: Mover
    slices: Sequence[slice]
    read: Sequence[_Stream | Tensor]
    made: Sequence[_Stream | Tensor]

    def run(self) -> Iterator[Block]:
        coming = [self._move(i, out=False) for i in range(min(DEPTH - 1, len(self.slices)))]
        leaving: list[Moving] = []
        for i, rows in enumerate(self.slices):
            if i + DEPTH - 1 < len(self.slices):
                coming.append(self._move(i + DEPTH - 1, out=False))
            coming[i].wait()
            if i >= DEPTH:
                leaving[i - DEPTH].wait()
            yield Block(rows, self._of(self.read, i), self._of(self.made, i))
            leaving.append(self._move(i, out=True))
        for moving in leaving[-DEPTH:]:
            moving.wait()

    def _of(self, streams: Sequence[_Stream | Tensor], i: int) -> list[Tensor]:
        rows = self.slices[i]
        return [one[rows] if isinstance(one, Tensor) else one.block(i, rows) for one in streams]

    def _move(self, i: int, *, out: bool) -> Moving:
        rows, moved = self.slices[i], self.made if out else self.read
        blocks = [(one.place, one.block(i, rows)) for one in moved if not isinstance(one, Tensor)]
        return self.move(blocks, rows, out)
