"""CSV bytes to typed columns, with errors that name the file and the line."""

import csv
import io
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.columns import MODULE_IDS, TableSpec
from bigtrk.events.event import Columns

BLANK = ("", "nan", "NaN", "NA", "null")
HEADER_LINES = 1
BLOCK_BYTES = 1 << 20  # fits the cache: whole files as one block take 8 % longer
FIX_VALUES = "correct the value or export the table again"


def fail_at(where: str, row: int, problem: str, remedy: str) -> NoReturn:
    """Raises InputError for table row `row` (0-based), naming the 1-based line of the file."""
    raise InputError(f"{where}, row {row + HEADER_LINES + 1}: {problem}; {remedy}")


def parse_table(content: bytes, spec: TableSpec, where: str, may_be_empty: bool = False) -> Columns:
    """Parses the known columns of a CSV file, each [rows], int64 or float64; others are ignored.

    Raises:
        InputError: there are no rows (unless it `may_be_empty`), no header, missing columns, ragged
            rows, values of the wrong type, or blanks where `spec` allows none.
    """
    # Blank lines at the end are harmless; within the table they are an error.
    if content.endswith((b"\n\n", b"\n\r\n")):
        content = content.rstrip(b"\r\n")
    content = content.removeprefix(b"\xef\xbb\xbf")
    header_end = content.find(b"\n")
    is_empty = header_end in (-1, len(content) - 1)
    if is_empty and not (may_be_empty and content.strip()):
        raise InputError(f"{where}: the table is empty; export it again or remove the event")
    names = _canonical_names(content.rstrip() if is_empty else content[:header_end], spec, where)
    types = _column_types(names, spec, where)
    try:
        table = _no_rows(types) if is_empty else _read_arrow(content, names, types)
    except pa.ArrowInvalid as error:
        _diagnose(content, names, types, where, str(error))
    # Integers know no blank: an optional column that has some is left out.
    known = [n for n in types if n not in spec.optional_ids or not table.column(n).null_count]
    columns = {name: _to_numpy(table, name, spec, where) for name in known}
    if spec.packed in columns:
        columns |= unpack_geometry_id(columns.pop(spec.packed))
    return columns


def _canonical_names(header: bytes, spec: TableSpec, where: str) -> list[str]:
    # latin-1 decodes any byte: a header of another encoding still yields its missing columns.
    names = [name.strip().strip('"') for name in header.decode("latin-1").split(",")]
    names = [spec.aliases.get(name, name) for name in names]
    known = {*spec.required, *spec.optional_ids, *spec.optional_floats, spec.packed}
    repeated = {name for name in names if name in known and names.count(name) > 1}
    if repeated:
        raise InputError(
            f"{where}, row 1: column {min(repeated)!r} appears twice; remove one of the two"
        )
    return [name if name in known else f"#{place}" for place, name in enumerate(names)]


def _column_types(names: list[str], spec: TableSpec, where: str) -> dict[str, pa.DataType]:
    wanted = dict.fromkeys(spec.ids + spec.optional_ids, pa.int64())
    wanted |= dict.fromkeys(spec.finite + spec.floats + spec.optional_floats, pa.float64())
    required = spec.required
    if spec.packed in names and not set(MODULE_IDS) <= set(names):
        required = tuple(name for name in required if name not in MODULE_IDS)
        wanted = {name: kind for name, kind in wanted.items() if name not in MODULE_IDS}
        wanted[spec.packed] = pa.uint64()
    missing = [name for name in required if name not in names]
    if missing:
        raise InputError(
            f"{where}, row 1: missing column {', '.join(missing)}; the table needs "
            f"{', '.join(required)}: check that it is a TrackML {spec.stems[0]} file, as of "
            "the challenge of 2018"
        )
    return {name: kind for name, kind in wanted.items() if name in names}


def _read_arrow(content: bytes, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    return pa_csv.read_csv(
        pa.BufferReader(content),
        pa_csv.ReadOptions(
            use_threads=False,
            block_size=BLOCK_BYTES,
            column_names=names,
            skip_rows=HEADER_LINES,
        ),
        pa_csv.ParseOptions(ignore_empty_lines=False),
        pa_csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=list(BLANK)
        ),
    )


def _no_rows(types: dict[str, pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def _to_numpy(table: pa.Table, name: str, spec: TableSpec, where: str) -> NDArray[np.generic]:
    column = table.column(name)
    if column.null_count and name in spec.never_blank:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        fail_at(where, row, f"{name} is blank or NaN", FIX_VALUES)
    values: NDArray[np.generic] = column.to_numpy()
    if name in spec.finite and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        fail_at(where, row, f"{name} is {values[row]}", FIX_VALUES)
    # Arrow's buffers are read-only, which torch.from_numpy warns about.
    return values if values.flags.writeable else values.copy()


def _diagnose(
    content: bytes, names: list[str], types: dict[str, pa.DataType], where: str, reason: str
) -> NoReturn:
    """Finds the row Arrow refused. Slow, but only ever run on a bad file."""
    lines = csv.reader(io.StringIO(content.decode("utf-8", errors="replace"), newline=""))
    next(lines)
    for row, values in enumerate(lines):
        if len(values) != len(names):
            problem = f"{len(values)} values where the header has {len(names)}"
            fail_at(where, row, problem, "the file may be truncated: fetch it again")
        for name, text in zip(names, values, strict=True):
            if name in types and not _parses(text, types[name]):
                problem = f"{name} is {text!r}, not {_described(types[name])}"
                fail_at(where, row, problem, FIX_VALUES)
    raise InputError(f"{where}: not a readable CSV table ({reason}); export it again")


def _described(kind: pa.DataType) -> str:
    return "a number" if pa.types.is_floating(kind) else f"an integer ({kind})"


def _parses(text: str, kind: pa.DataType) -> bool:
    if text in BLANK:
        return True
    try:
        pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def unpack_geometry_id(packed: NDArray[np.generic]) -> Columns:
    """Unpacks volume_id, layer_id and module_id from ACTS geometry ids, each [N] int64.

    `packed` is [N] uint64. Source: the masks of ACTS' GeometryIdentifier (volume bits 56 to 63,
    layer bits 36 to 47, sensitive surface bits 8 to 27).
    """
    bits = packed.astype(np.uint64)
    return {
        "volume_id": (bits >> np.uint64(56)).astype(np.int64),
        "layer_id": (bits >> np.uint64(36) & np.uint64(0xFFF)).astype(np.int64),
        "module_id": (bits >> np.uint64(8) & np.uint64(0xFFFFF)).astype(np.int64),
    }
