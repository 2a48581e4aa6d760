"""A metric by step or epoch, kept in bounded memory however long a run trains."""

import math
from dataclasses import dataclass

MOST = 1000  # chunks


@dataclass
class _Chunk:
    """Values at neighbouring places, `number` * stride and those after it; sums of both."""

    number: int
    newest: int
    count: int
    places: float
    values: float


class Curve:
    """Values by place, as means over stretches of places once there are many."""

    def __init__(self) -> None:
        self._stride = 1
        self._chunks: list[_Chunk] = []

    def add(self, place: int, value: float) -> None:
        """Adds a value that is finite. One at a place that is there already, as after a roll-back,
        replaces all from there on.
        """
        if not math.isfinite(value):
            return
        while self._chunks and self._chunks[-1].newest >= place:
            self._chunks.pop()
        self._append(_Chunk(place // self._stride, place, 1, place, value))
        if len(self._chunks) > MOST:
            self._coarsen()

    def points(self) -> list[tuple[float, float]]:
        """Returns mean place and mean value of each stretch, ascending."""
        return [(chunk.places / chunk.count, chunk.values / chunk.count) for chunk in self._chunks]

    def _append(self, chunk: _Chunk) -> None:
        last = self._chunks[-1] if self._chunks else None
        if last is None or last.number != chunk.number:
            self._chunks.append(chunk)
            return
        last.newest, last.count = chunk.newest, last.count + chunk.count
        last.places, last.values = last.places + chunk.places, last.values + chunk.values

    def _coarsen(self) -> None:
        chunks, self._chunks, self._stride = self._chunks, [], 2 * self._stride
        for chunk in chunks:
            chunk.number //= 2
            self._append(chunk)
