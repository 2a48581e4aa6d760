"""The rows of Parquet files with a row per event, of which one at a time is in memory.

Released files have one row group of a hundred events, so that a group is too much to read at once:
it is decoded row by row, and reading on from one row to the next repeats nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.errors import InputError, reason
from bigtrk.events.colliderml.layout import StoredFile

BUFFER_BYTES = 1 << 20  # read at once of each column; without, a whole group's packed bytes are


@dataclass(frozen=True)
class Place:
    """The place of an event: row `row` of row group `group` of a file, row `number` of the file.

    columns: those to read. size: the group's bytes per row.
    """

    file: StoredFile
    columns: tuple[str, ...]
    group: int
    row: int
    number: int
    size: int

    def where(self, event: int) -> str:
        return f"{self.file.path}, row {self.number + 1} (event {event})"


class RowStream:
    """One file's rows of some columns."""

    def __init__(self, file: StoredFile, columns: Sequence[str]) -> None:
        self._file = pq.ParquetFile(file.path, buffer_size=BUFFER_BYTES)
        self._columns = list(columns)
        self._group = -1
        self._next = 0
        self._rows: Iterator[pa.RecordBatch] = iter(())
        self._one_reader = Lock()

    def row(self, place: Place) -> pa.RecordBatch:
        """Returns one row. Rows before it in its group are decoded, unless it is further on than
        the last one.
        """
        with self._one_reader:
            if place.group != self._group or place.row < self._next:
                groups = [place.group]
                self._rows = self._file.iter_batches(1, groups, self._columns, use_threads=False)
                self._group, self._next = place.group, 0
            skipped = place.row - self._next
            self._group = -1  # what fails is begun again
            found = next(islice(self._rows, skipped, None))
            self._group, self._next = place.group, place.row + 1
            return found


@lru_cache(maxsize=4)  # of hits and of particles, of the sample in use and of another
def _stream(file: StoredFile, columns: tuple[str, ...]) -> RowStream:
    return RowStream(file, columns)


def read_row(place: Place) -> pa.RecordBatch:
    """Reads the columns of the row at `place`.

    Raises:
        InputError: the file is damaged.
    """
    with damage_told(place.file):
        return _stream(place.file, place.columns).row(place)


@contextmanager
def damage_told(file: StoredFile) -> Iterator[None]:
    """Turns what Arrow raises for a bad file into one error, which names it.

    Raises:
        InputError: for each exception.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # Arrow promises no one kind for damage
        raise InputError(
            f"{file.path}: not a readable Parquet file ({reason(error)}); it may be truncated: "
            "fetch it again"
        ) from None
