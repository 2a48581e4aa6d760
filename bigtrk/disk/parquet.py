"""Columns of integers from Parquet files of anybody's, and the number of values such a file names.

Shapes: M rows of the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.disk.files import check_file, read_bytes
from bigtrk.disk.unpacking import limit_of
from bigtrk.errors import InputError, one_line, reason

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length, and the magic
# Places in the structures FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS, COLUMNS, META_DATA, NUM_VALUES = 4, 1, 3, 5
TRUE, FALSE, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12


def values_of_groups(file: BinaryIO) -> list[int]:
    """Returns the number of values of each row group, of all of its columns.

    Raises:
        ValueError: the file has no footer, or it is damaged.
    """
    size = file.seek(0, 2)
    file.seek(max(size - TAIL_BYTES, 0))
    tail = file.read()
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - TAIL_BYTES:
        raise ValueError("it does not end in a footer")
    file.seek(size - TAIL_BYTES - length)
    try:
        footer = _Compact(file.read(length)).structure()
        return [
            sum(_natural(chunk[META_DATA][NUM_VALUES]) for chunk in group[COLUMNS])
            for group in footer[ROW_GROUPS]
        ]
    except (IndexError, KeyError, TypeError, RecursionError):
        raise ValueError("its footer is damaged") from None


def _natural(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError
    return value


class _Compact:
    """Values of the compact protocol, one after another; of text the place is passed over.

    Raises:
        IndexError: the content ends within a value.
        TypeError: a type is none of the protocol's.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def structure(self) -> dict[int, Any]:
        """Reads fields by their ids, to the stop byte."""
        found: dict[int, Any] = {}
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self._integer()
            found[field] = self._value(header & 15)
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in INTEGERS:
            return self._integer()
        if kind in LISTS:
            return self._list()
        if kind == STRUCT:
            return self.structure()
        self._pass_over(kind)
        return None

    def _pass_over(self, kind: int) -> None:
        lengths = {BYTE: 1, DOUBLE: 8}
        if kind not in (*lengths, BINARY):
            raise TypeError
        length = self._varint() if kind == BINARY else lengths[kind]
        self._at += length

    def _list(self) -> list[Any]:
        header = self._byte()
        size = header >> 4 if header >> 4 < 15 else self._varint()
        # Truth values have a byte each in lists.
        kind = BYTE if header & 15 in (TRUE, FALSE) else header & 15
        return [self._value(kind) for _ in range(size)]


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
