"""Reads integer columns of Parquet files from anywhere, and the number of values they claim.

Shapes: M rows of the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.disk.files import check_file
from bigtrk.disk.unpacking import limit_of
from bigtrk.errors import InputError, damage_told, one_line

MAGIC = b"PAR1"
TAIL_BYTES = 8  # the footer's length, and the magic
# Places in the structures FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
ROW_GROUPS, COLUMNS, META_DATA, NUM_VALUES = 4, 1, 3, 5
# Types of Thrift's compact protocol.
TRUE, FALSE, BYTE, INTEGERS, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12


def values_of_groups(file: BinaryIO) -> list[int]:
    """Returns the number of values of each row group; pyarrow crashes on damaged counts."""
    size = file.seek(0, 2)
    file.seek(max(size - TAIL_BYTES, 0))
    tail = file.read()
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - TAIL_BYTES:
        raise ValueError("it lacks the footer of a Parquet file")
    file.seek(size - TAIL_BYTES - length)
    with suppress(StopIteration, KeyError, TypeError, RecursionError):
        footer = _value(iter(file.read(length)), STRUCT)
        groups = [[one[META_DATA][NUM_VALUES] for one in g[COLUMNS]] for g in footer[ROW_GROUPS]]
        if all(isinstance(values, int) and values >= 0 for group in groups for values in group):
            return [sum(group) for group in groups]
    raise ValueError("its footer is damaged")


def _value(content: Iterator[int], kind: int) -> Any:
    """Parses a value of Thrift's compact protocol; a structure gives its fields by id."""
    if kind in (TRUE, FALSE):
        return kind == TRUE
    if kind in INTEGERS:
        return _integer(content)
    if kind == STRUCT:
        found, field = {}, 0
        while header := next(content):
            field = field + (header >> 4) if header >> 4 else _integer(content)
            found[field] = _value(content, header & 15)
        return found
    if kind in LISTS:
        header = next(content)
        size = header >> 4 if header >> 4 < 15 else _varint(content)
        # Truth values have a byte each in lists.
        kind = BYTE if header & 15 in (TRUE, FALSE) else header & 15
        return [_value(content, kind) for _ in range(size)]
    if kind not in (BYTE, DOUBLE, BINARY):
        raise TypeError
    for _ in range({BYTE: 1, DOUBLE: 8}.get(kind) or _varint(content)):
        next(content)
    return None


def _varint(content: Iterator[int]) -> int:
    value = shift = 0
    while True:
        byte = next(content)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value


def _integer(content: Iterator[int]) -> int:
    value = _varint(content)
    return value >> 1 ^ -(value & 1)


Int64 = NDArray[np.int64]
LARGEST = np.iinfo(np.int64).max
NONE = np.iinfo(np.uint64).max


def read_integers(path: Path, required: Sequence[str], optional: Sequence[str]) -> dict[str, Int64]:
    """Returns columns by name, each [M] int64, read and checked by `IntegerGroups`."""
    groups = IntegerGroups(path, required, optional)
    groups.check_size(int(groups.first_row[-1]))
    none: Int64 = np.zeros(0, np.int64)
    parts = [dict.fromkeys(groups.names, none)]
    parts += [groups.read(group) for group in range(len(groups.first_row) - 1)]
    return {name: np.concatenate([part[name] for part in parts]) for name in groups.names}


class IntegerGroups:
    """Columns of integers below 2^63 of a Parquet file, read by row group. `optional` columns may
    be missing; columns that are neither required nor optional are not read.

    names: the columns present. first_row [groups + 1]: the file's row at which each group begins.
    or_none: columns in which -1 stands for none; if unsigned, 2^64 - 1 does, too.
    """

    def __init__(
        self,
        path: Path,
        required: Sequence[str],
        optional: Sequence[str],
        or_none: Sequence[str] = (),
    ) -> None:
        check_file(path)
        self._path, self._or_none = path, or_none
        with _damage_told(path):
            self._file = pq.ParquetFile(path)
            self.names = _present(self._file.schema_arrow, required, optional, path)
            metadata = self._file.metadata
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            self.check_size(max(rows, default=0))
        self.first_row: Int64 = np.cumsum([0, *rows])

    def check_size(self, rows: int) -> None:
        """Raises InputError if the file's bytes are too few for `rows` rows (an archive bomb)."""
        packed = self._path.stat().st_size
        if rows * len(self.names) * 8 > limit_of(packed):
            raise InputError(
                f"{self._path}: claims {rows:,} rows, too many for its {packed:,} bytes; "
                "write it again without compression and dictionary encoding"
            )

    def read(self, group: int, names: Sequence[str] | None = None) -> dict[str, Int64]:
        """Returns a row group's columns by name, each [M] int64: all, or only `names`."""
        wanted = self.names if names is None else list(names)
        first = int(self.first_row[group])
        with _damage_told(self._path):
            table = self._file.read_row_group(group, columns=wanted, use_threads=False)
            read = {name: (table.column(name), name in self._or_none) for name in wanted}
            return {name: _integers(*read[name], name, self._path, first) for name in wanted}


def _damage_told(path: Path) -> AbstractContextManager[None]:
    return damage_told(f"{path}: is not a readable Parquet file", "write it again")


def _present(
    schema: pa.Schema, required: Sequence[str], optional: Sequence[str], path: Path
) -> list[str]:
    """Lists the wanted columns in the file; InputError if one is missing, double or no integer."""
    if missing := [name for name in required if name not in schema.names]:
        said = f"{path}: missing column {', '.join(missing)}"
        raise InputError(f"{said}; rename or add columns so that it has {', '.join(required)}")
    present = [name for name in (*required, *optional) if name in schema.names]
    for name in present:
        if schema.names.count(name) > 1:
            raise InputError(f"{path}: column {name} appears twice; remove one of the two")
        if not pa.types.is_integer(kind := schema.field(name).type):
            said = f"{path}: column {name} holds {one_line(str(kind))}"
            raise InputError(f"{said}, not integers; write it as int64, without blank values")
    return present


def _integers(column: pa.ChunkedArray, or_none: bool, name: str, path: Path, first: int) -> Int64:
    """Returns a column, from the file's row `first`, as int64; or_none: NONE becomes -1."""
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(f"{path}, row {row + 1}: {name} is blank; write a whole number")
    values = column.to_numpy()
    none = (values == NONE) & or_none
    if values.dtype == np.uint64 and len(large := np.flatnonzero((values > LARGEST) & ~none)):
        said = f"{path}, row {first + int(large[0]) + 1}: {name} is {values[large[0]]}"
        raise InputError(f"{said}, too large for int64; write smaller numbers")
    return np.array(values, np.int64)
