"""Stores whose rows pass through the memory of the device in blocks.

Blocks are read ahead of their use and written behind it, each in a thread of its own, while the
pass computes on those between.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bigtrk.models.stores.store import Block

# Blocks in memory of each stream: one that is used, and those that are read ahead of it or written
# behind it.
DEPTH = 3
# Threads that move blocks: as many streams as a backward pass reads, and the one it writes.
_MOVERS = 6


@dataclass(frozen=True)
class Place(ABC):
    """Where rows [n_rows, width] of `dtype` are kept; passes on `device` use them."""

    n_rows: int
    width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    @abstractmethod
    def read(self, rows: slice, into: Tensor) -> None:
        """Fills `into` [M, width] with rows."""

    @abstractmethod
    def write(self, rows: slice, values: Tensor) -> None:
        """Keeps values [M, width] as rows."""


class StreamedStore(ABC):
    """Keeps rows in places off the device, `block_rows` of which are moved at once."""

    def __init__(self, block_rows: int) -> None:
        self._block_rows = block_rows
        self._free: dict[tuple[Any, ...], list[Tensor]] = {}

    @abstractmethod
    def buffer(self, place: Place, n_rows: int) -> Tensor:
        """Makes memory for a block of `place`'s rows: [n_rows, width]."""

    @abstractmethod
    def ready(self) -> Any:
        """Marks what was computed on the device until now, for a thread that moves a block."""

    @abstractmethod
    def move(self, ready: Any, place: Place, rows: slice, block: Tensor, *, out: bool) -> None:
        """Reads rows into `block`, or writes them `out`, after `ready`; in a thread."""

    def blocks(self, n_rows: int, read: Sequence[Place], made: Sequence[Place]) -> Iterator[Block]:
        """Yields the blocks in their order, with buffers that hold them until the next but one."""
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(_MOVERS))
            ahead = [self._ring(stack, place) for place in read]
            behind = [self._ring(stack, place) for place in made]
            yield from _Pass(self, pool, self._slices(n_rows), read, made, ahead, behind).run()

    def _slices(self, n_rows: int) -> list[slice]:
        step = self._block_rows
        return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]

    def _ring(self, stack: ExitStack, place: Place) -> list[Tensor]:
        """Takes buffers for the blocks of a place, until the pass is over."""
        key = (place.width, place.dtype, place.device)
        free = self._free.setdefault(key, [])
        taken = [free.pop() if free else self.buffer(place, self._block_rows) for _ in range(DEPTH)]
        stack.callback(free.extend, taken)
        return taken


@dataclass(frozen=True)
class _Pass:
    """A pass through places: `ahead` and `behind` have the buffers of those read and made."""

    store: StreamedStore
    pool: ThreadPoolExecutor
    slices: Sequence[slice]
    read: Sequence[Place]
    made: Sequence[Place]
    ahead: Sequence[Sequence[Tensor]]
    behind: Sequence[Sequence[Tensor]]

    def run(self) -> Iterator[Block]:
        coming = [self._move(i, out=False) for i in range(min(DEPTH - 1, len(self.slices)))]
        leaving: list[list[Future[None]]] = []
        for i, rows in enumerate(self.slices):
            if i + DEPTH - 1 < len(self.slices):
                coming.append(self._move(i + DEPTH - 1, out=False))
            _wait(coming[i])
            if i >= DEPTH:
                _wait(leaving[i - DEPTH])
            yield Block(rows, self._of(self.ahead, i), self._of(self.behind, i))
            leaving.append(self._move(i, out=True))
        for moves in leaving[-DEPTH:]:
            _wait(moves)

    def _of(self, rings: Sequence[Sequence[Tensor]], i: int) -> list[Tensor]:
        rows = self.slices[i]
        return [ring[i % DEPTH][: rows.stop - rows.start] for ring in rings]

    def _move(self, i: int, *, out: bool) -> list[Future[None]]:
        ready, places = self.store.ready(), self.made if out else self.read
        blocks = self._of(self.behind if out else self.ahead, i)
        return [
            self.pool.submit(self.store.move, ready, place, self.slices[i], block, out=out)
            for place, block in zip(places, blocks, strict=True)
        ]


def _wait(moves: Sequence[Future[None]]) -> None:
    for move in moves:
        move.result()
