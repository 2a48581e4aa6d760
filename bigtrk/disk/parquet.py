"""Columns of integers from a parquet file of anybody's.

Shapes: M rows of the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import limit_of
from bigtrk.errors import InputError, one_line, reason

Int64 = NDArray[np.int64]

LARGEST = np.iinfo(np.int64).max
NONE = np.iinfo(np.uint64).max


def read_integers(path: Path, required: Sequence[str], optional: Sequence[str]) -> dict[str, Int64]:
    """Reads columns by name, each [M] int64; `optional` ones are left out where the file has none,
    and other columns are not read.

    Raises:
        InputError: the file is damaged, would unpack to more than `bigtrk.disk.unpacking` allows,
            lacks a column, or one holds other values than whole numbers below 2^63.
    """
    content = read_bytes(path)
    with _damage_told(path):
        file = pq.ParquetFile(pa.BufferReader(content))
        names = _present(file.schema_arrow, required, optional, path)
        _check_size(file.metadata.num_rows, names, len(content), path)
        table = file.read(columns=names, use_threads=False)
        return {name: _integers(table.column(name), name, path) for name in names}


class IntegerGroups:
    """Columns of integers of a parquet file that need not fit memory: as `read_integers` does it,
    but a group of rows at a time.

    first_row [G + 1]: the row at which each group begins, counted from 0, and where the last ends.
    or_none: columns in which -1 stands for none; where they are unsigned, 2^64 - 1 does.

    Raises:
        InputError: as of `read_integers`.
    """

    def __init__(
        self,
        path: Path,
        required: Sequence[str],
        optional: Sequence[str],
        or_none: Sequence[str] = (),
    ) -> None:
        check_file(path)
        self._path = path
        self._or_none = or_none
        with _damage_told(path):
            self._file = pq.ParquetFile(path)
            self._names = _present(self._file.schema_arrow, required, optional, path)
            metadata, size = self._file.metadata, path.stat().st_size
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            for group in rows:
                _check_size(group, self._names, size, path)
        self.first_row: Int64 = np.cumsum([0, *rows])

    def read(self, group: int, names: Sequence[str] | None = None) -> dict[str, Int64]:
        """Reads a group's columns, each [M] int64: all that the file has, or those of `names`.

        Raises:
            InputError: the group is damaged, or a value is no whole number below 2^63.
        """
        wanted = self._names if names is None else list(names)
        first = int(self.first_row[group])
        with _damage_told(self._path):
            table = self._file.read_row_group(group, columns=wanted, use_threads=False)
            return {
                name: _integers(
                    table.column(name), name, self._path, first, or_none=name in self._or_none
                )
                for name in wanted
            }


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # Arrow promises no one kind for damage
        raise InputError(
            f"{path}: not a readable parquet file ({reason(error)}); write it again"
        ) from None


def _check_size(rows: int, names: Sequence[str], packed: int, path: Path) -> None:
    """Refuses more rows than a file should hold: a few bytes can stand for any number of equal
    ones.
    """
    if rows * len(names) * 8 > limit_of(packed):
        raise InputError(
            f"{path}: says that it holds {rows:,} rows, more than {packed:,} bytes should unpack "
            "to; write it again without compression and dictionaries"
        )


def _present(
    schema: pa.Schema, required: Sequence[str], optional: Sequence[str], path: Path
) -> list[str]:
    """Lists the wanted columns that the file has, all of one kind of integer."""
    if missing := [name for name in required if name not in schema.names]:
        raise InputError(
            f"{path}: missing column {', '.join(missing)}; the table needs {', '.join(required)}: "
            "rename its columns"
        )
    present = [name for name in (*required, *optional) if name in schema.names]
    for name in present:
        if schema.names.count(name) > 1:
            raise InputError(f"{path}: column {name} appears twice; remove one of the two")
        if not pa.types.is_integer(kind := schema.field(name).type):
            raise InputError(
                f"{path}: column {name} holds {one_line(str(kind))}, not integers; write it as "
                "int64, without blanks"
            )
    return present


def _integers(
    column: pa.ChunkedArray, name: str, path: Path, first: int = 0, or_none: bool = False
) -> Int64:
    """Returns a column of which row 0 is the file's row `first`; or_none: NONE becomes -1."""
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(f"{path}, row {row + 1}: {name} is blank; write a whole number")
    values = column.to_numpy()
    none = (values == NONE) & or_none
    if values.dtype == np.uint64 and len(large := np.flatnonzero((values > LARGEST) & ~none)):
        row = first + int(large[0])
        raise InputError(
            f"{path}, row {row + 1}: {name} is {values[large[0]]}, beyond int64; number them from 0"
        )
    return np.array(values, np.int64)
