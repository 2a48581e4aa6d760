"""A store in the memory of an accelerator's host."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from bigtrk.models.layers.workspace import HOST_BYTES
from bigtrk.models.stores.streamed import THERE, Mover, Moving, Place, StreamedStore

# torch rounds pinned memory up to powers of two: whole tensors of 5.6 GB would take 8.6.
PIECE_BYTES = 2**27


@dataclass(frozen=True)
class HostPlace(Place):
    """Rows in memory of the host, pinned where the device can then fetch them by itself.

    pieces: of `piece_rows` each, but for the last.
    """

    piece_rows: int
    pieces: Sequence[Tensor] = field(compare=False)

    def parts(self, rows: slice, block: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields `rows` as they lie in pieces, each with its part of `block`."""
        start = rows.start
        while start < rows.stop:
            number, first = divmod(start, self.piece_rows)
            stop = min(rows.stop, start - first + self.piece_rows)
            piece = self.pieces[number][first : first + stop - start]
            yield piece, block[start - rows.start : stop - rows.start]
            start = stop


class HostStore(StreamedStore):
    """Keeps rows in the memory of the host; blocks travel beside the computation.

    On a GPU they do so in two streams, one each way, that wait for what computes and it for them;
    the host waits for none.
    """

    def __init__(self) -> None:
        super().__init__(HOST_BYTES)

    def new(self, n_rows: int, width: int, dtype: torch.dtype, device: torch.device) -> HostPlace:
        """Makes room in memory of the host."""
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
        """Has a GPU fetch and bring blocks in streams beside the current one; a CPU copies them."""
        if not torch.cuda.is_available():
            yield _copy
            return
        coming, leaving = _streams_beside(torch.cuda.current_device())

        def move(blocks: Sequence[tuple[HostPlace, Tensor]], rows: slice, out: bool) -> Moving:
            beside = leaving if out else coming
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                _copy(blocks, rows, out)
                return _Arrival(beside.record_event())

        try:
            yield move
        finally:
            # Buffers are used again in the current stream, which thus must not be ahead of these.
            for beside in (coming, leaving):
                torch.cuda.current_stream().wait_stream(beside)


@cache
def _streams_beside(device: int) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Returns the streams of a process in which blocks come to a GPU and leave it."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


@dataclass(frozen=True)
class _Arrival:
    """Blocks on their way in a stream; `there` is its event once they are there."""

    there: torch.cuda.Event

    def wait(self) -> None:
        """Has the current stream wait."""
        torch.cuda.current_stream().wait_event(self.there)


def _copy(blocks: Sequence[tuple[HostPlace, Tensor]], rows: slice, out: bool) -> Moving:
    for place, block in blocks:
        for piece, part in place.parts(rows, block):
            target, source = (piece, part) if out else (part, piece)
            target.copy_(source, non_blocking=True)
    return THERE
