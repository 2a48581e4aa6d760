"""Columns of integers from a parquet file of anybody's.

Shapes: M rows of the file.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.disk.files import read_bytes
from bigtrk.disk.unpacking import limit_of
from bigtrk.errors import InputError, one_line, reason

Int64 = NDArray[np.int64]

LARGEST = np.iinfo(np.int64).max


def read_integers(path: Path, required: Sequence[str], optional: Sequence[str]) -> dict[str, Int64]:
    """Reads columns by name, each [M] int64; `optional` ones are left out where the file has none,
    and other columns are not read.

    Raises:
        InputError: the file is damaged, would unpack to more than `bigtrk.disk.unpacking` allows,
            lacks a column, or one holds other values than whole numbers below 2^63.
    """
    content = read_bytes(path)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = _present(file.schema_arrow, required, optional, path)
        # A few bytes can stand for any number of equal rows.
        if (rows := file.metadata.num_rows) * len(names) * 8 > limit_of(len(content)):
            raise InputError(
                f"{path}: says that it holds {rows:,} rows, more than {len(content):,} bytes "
                "should unpack to; write it again without compression and dictionaries"
            )
        table = file.read(columns=names, use_threads=False)
        return {name: _integers(table.column(name), name, path) for name in names}
    except InputError:
        raise
    except Exception as error:  # Arrow promises no one kind for damage
        raise InputError(
            f"{path}: not a readable parquet file ({reason(error)}); write it again"
        ) from None


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


def _integers(column: pa.ChunkedArray, name: str, path: Path) -> Int64:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(f"{path}, row {row + 1}: {name} is blank; write a whole number")
    values = column.to_numpy()
    if values.dtype == np.uint64 and len(large := np.flatnonzero(values > LARGEST)):
        raise InputError(
            f"{path}, row {large[0] + 1}: {name} is {values[large[0]]}, beyond int64; number "
            "them from 0"
        )
    return np.array(values, np.int64)
