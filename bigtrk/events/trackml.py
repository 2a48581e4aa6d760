"""Reads and writes events in TrackML's format: CSV tables in a folder or a zip archive."""

import gzip
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from bigtrk.disk.files import by_numbers, write_atomically
from bigtrk.errors import InputError, number_of
from bigtrk.events.archives import Source, open_source
from bigtrk.events.event import MODULE_IDS, NOISE, Columns, Event, TableSpec, only_event

HITS = TableSpec(
    stems=("hits",),
    ids=("hit_id", *MODULE_IDS),
    finite=("x", "y", "z"),
    packed="geometry_id",
)
CELLS = TableSpec(
    stems=("cells",),
    ids=("hit_id", "ch0", "ch1"),
    finite=("value",),
    # ACTS renamed the channels: CellData of its CSV examples.
    aliases={"channel0": "ch0", "channel1": "ch1"},
)
PARTICLES = TableSpec(
    # ACTS names its generator-level particles by the second stem.
    stems=("particles", "particles_initial"),
    ids=("particle_id",),
    floats=("vx", "vy", "vz", "px", "py", "pz", "q"),
    optional_ids=("particle_type", "nhits"),
)
TRUTH = TableSpec(
    stems=("truth",),
    ids=("hit_id", "particle_id"),
    optional_floats=("tx", "ty", "tz", "tpx", "tpy", "tpz", "weight"),
)
ROTATION = tuple(f"rot_{global_axis}{local}" for global_axis in "xyz" for local in "uvw")
MODULE_SIZES = ("module_t", "module_minhu", "module_maxhu", "module_hv", "pitch_u", "pitch_v")
DETECTORS = TableSpec(
    stems=("detectors",),
    ids=MODULE_IDS,
    finite=("cx", "cy", "cz", *ROTATION, *MODULE_SIZES),
)


BLANK = ("", "nan", "NaN", "NA", "null")
FIRST_LINE = 2  # of a table, below its header; lines count from 1
BLOCK_BYTES = 1 << 20  # fits the cache: whole files as one block take 8 % longer
FIX_VALUES = "correct the value or export the table again"


def fail_at(where: str, row: int, problem: str, remedy: str) -> NoReturn:
    """Raises InputError for table row `row` (0-based), naming the 1-based line of the file."""
    raise InputError(f"{where}, row {row + FIRST_LINE}: {problem}; {remedy}")


def parse_table(content: bytes, spec: TableSpec, where: str, may_be_empty: bool = False) -> Columns:
    """Parses the known columns of a CSV file, each [rows], int64 or float64; ignores other columns.
    Raises InputError if there are no rows (unless it `may_be_empty`), no header, missing columns,
    ragged rows, values of the wrong type, or blanks where `spec` allows none.
    """
    # Blank lines at the end are harmless; within the table they are an error.
    if content.endswith((b"\n\n", b"\n\r\n")):
        content = content.rstrip(b"\r\n")
    content = content.removeprefix(b"\xef\xbb\xbf")
    header_end = content.find(b"\n")
    is_empty = header_end in (-1, len(content) - 1)
    if is_empty and not (may_be_empty and content.strip()):
        raise InputError(f"{where}: the table is empty; export it again")
    names = _canonical_names(content.rstrip() if is_empty else content[:header_end], spec, where)
    types = _column_types(names, spec, where)
    try:
        table = pa.table({name: pa.array([], kind) for name, kind in types.items()})
        if not is_empty:
            table = _read_arrow(content, names, types)
    except pa.ArrowInvalid as error:
        _fail_as_arrow(names, types, where, str(error))
    # An int64 cannot be blank: an optional column with blanks is left out.
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
        raise InputError(f"{where}, row 1: column {min(repeated)!r} appears twice; remove one")
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
            f"{', '.join(required)}: check that it is {spec.maker}'s {spec.stems[0]} file"
        )
    return {name: kind for name, kind in wanted.items() if name in names}


def _read_arrow(content: bytes, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
    rows = {"column_names": names, "skip_rows": FIRST_LINE - 1, "block_size": BLOCK_BYTES}
    chosen = {"column_types": types, "include_columns": list(types), "null_values": list(BLANK)}
    return pa_csv.read_csv(
        pa.BufferReader(content),
        pa_csv.ReadOptions(use_threads=False, **rows),
        pa_csv.ParseOptions(ignore_empty_lines=False),
        pa_csv.ConvertOptions(**chosen),
    )


def _to_numpy(table: pa.Table, name: str, spec: TableSpec, where: str) -> NDArray[np.generic]:
    column = table.column(name)
    if column.null_count and name in spec.ids + spec.finite:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        fail_at(where, row, f"{name} is blank or NaN", FIX_VALUES)
    values: NDArray[np.generic] = column.to_numpy()
    if name in spec.finite and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        fail_at(where, row, f"{name} is {values[row]}", FIX_VALUES)
    # Arrow's buffers are read-only, which torch.from_numpy warns about.
    return values if values.flags.writeable else values.copy()


_RAGGED = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")
_INVALID = re.compile(r"In CSV column #(\d+): Row #(\d+): .*invalid value '(.*)'", re.DOTALL)


def _fail_as_arrow(
    names: list[str], types: dict[str, pa.DataType], where: str, reason: str
) -> NoReturn:
    """Raises InputError that names the row and the column that Arrow could not parse."""
    if found := _RAGGED.match(reason):
        problem = f"{found[3]} values where the header has {found[2]}"
        remedy = "the file may be truncated: fetch it again"
        fail_at(where, int(found[1]) - FIRST_LINE, problem, remedy)
    if found := _INVALID.match(reason):
        name = names[int(found[1])]
        needed = "a number" if pa.types.is_floating(types[name]) else f"an integer ({types[name]})"
        problem = f"{name} is {found[3]!r}, not {needed}"
        fail_at(where, int(found[2]) - FIRST_LINE, problem, FIX_VALUES)
    raise InputError(f"{where}: is not a readable CSV table ({reason}); export it again")


def unpack_geometry_id(packed: NDArray[np.generic]) -> Columns:
    """Unpacks volume_id, layer_id and module_id, each [N] int64, from ACTS geometry ids [N] uint64.

    Source: the masks of ACTS' GeometryIdentifier (volume bits 56 to 63, layer bits 36 to 47,
    sensitive surface bits 8 to 27; bits 0 to 27 before it had an extra byte).
    """
    bits = packed.astype(np.uint64)
    has_extra = not (bits & 0xFF).any()
    fields = bits >> 56, bits >> 36 & 0xFFF, bits >> 8 & 0xFFFFF if has_extra else bits & 0xFFFFFFF
    return {name: ids.astype(np.int64) for name, ids in zip(MODULE_IDS, fields, strict=True)}


EVENT_FILE = re.compile(r"(event\d+)-([a-z_-]+)\.csv(\.gz)?")
HITS_FILE = re.compile(r"(event\d+)-hits\.csv(\.gz)?")
DETECTORS_FILE = "detectors.csv"


@dataclass(frozen=True)
class TrackmlEvents:
    """The TrackML events in a folder or zip archive, or one event, if `path` is one of its files or
    a prefix of their names, such as `DIR/event000001000`.
    """

    path: Path

    def events(self) -> list[str]:
        path, name = split_prefix(self.path, None)
        names = _events_of(open_source(path))
        return names if name is None else [name]

    def sizes(self) -> dict[str, int]:
        source = open_source(split_prefix(self.path, None)[0])
        return source.sizes({name: _file_of(source, name, HITS) for name in self.events()})

    def read(self, name: str | None, with_truth: bool) -> Event:
        path, name = split_prefix(self.path, name)
        source = open_source(path)
        if name is None:
            name = only_event(_events_of(source), path)
        specs = (HITS, CELLS, PARTICLES, TRUTH) if with_truth else (HITS, CELLS)
        files = {spec: file for spec in specs if (file := _file_of(source, name, spec))}
        if HITS not in files:
            raise InputError(
                f"{path}: has no {name}-hits.csv or .csv.gz; add it, or name another event"
            )
        where = {spec: source.where(file) for spec, file in files.items()}

        def table(spec: TableSpec) -> Columns:
            return parse_table(source.read(files[spec]), spec, where[spec], not with_truth)

        # Unpacking and parsing release the interpreter lock: a third off on two cores.
        with ThreadPoolExecutor(len(files)) as pool:
            found = dict(zip(files, pool.map(table, files), strict=True))
        hits = found[HITS]
        check_unique(hits, "hit_id", where[HITS])
        if PARTICLES in found:
            check_unique(found[PARTICLES], "particle_id", where[PARTICLES])
        for spec in (TRUTH, CELLS):
            if spec in found:
                check_known(found[spec], "hit_id", where[spec], hits["hit_id"], where[HITS])
        if TRUTH in found:
            _check_whole(found[TRUTH]["hit_id"], where[TRUTH], hits["hit_id"])
        return Event(name, hits, *(found.get(spec) for spec in (CELLS, PARTICLES, TRUTH)))


def find_trackml(path: Path) -> TrackmlEvents | None:
    """Finds the TrackML events of a folder; None if it holds none."""
    has_hits = path.is_dir() and any(HITS_FILE.fullmatch(entry.name) for entry in path.iterdir())
    return TrackmlEvents(path) if has_hits else None


def read_detectors(path: Path) -> Columns:
    """Reads the module table `detectors.csv` next to the events: one row per module.

    volume_id layer_id module_id [M] int64; cx cy cz, the half widths module_minhu module_maxhu
    module_hv, module_t, pitch_u pitch_v (mm) and the rotation rot_xu ... rot_zw [M] float64.
    """
    path, _ = split_prefix(path, None)
    source = open_source(path)
    file = source.find(DETECTORS_FILE)
    if file is None:
        raise InputError(
            f"{path}: holds no detectors.csv or detectors.csv.gz; copy the detector file of the "
            "data set there"
        )
    return parse_table(source.read(file), DETECTORS, source.where(file))


def split_prefix(path: Path, name: str | None) -> tuple[Path, str | None]:
    """Splits `DIR/event1-hits.csv` or `DIR/event1` in folder and event name: (`DIR`, `event1`)."""
    if path.is_dir():
        return path, name
    if match := EVENT_FILE.fullmatch(path.name):
        return path.parent, match[1]
    if not path.exists() and re.fullmatch(r"event\d+", path.name):
        return path.parent, path.name
    is_detector = path.name in (DETECTORS_FILE, f"{DETECTORS_FILE}.gz")
    return path.parent if is_detector else path, name


def _events_of(source: Source) -> list[str]:
    matches = (HITS_FILE.fullmatch(file) for file in source.members)
    if events := {match[1] for match in matches if match}:
        return sorted(events, key=by_numbers)
    if archives := sorted(file for file in source.members if file.endswith(".zip")):
        unpack = "unpack it and " if source.path.is_file() else ""
        raise InputError(
            f"{source.path}: holds no events, but archives such as {archives[0]}; {unpack}name one "
            "of them"
        )
    inner = (path for path in sorted(source.path.glob("*/")) if find_trackml(path))
    if nearest := next(inner, None):
        raise InputError(f"{source.path}: holds no events, but {nearest} does; name {nearest}")
    unpack = "if it holds Parquet files, unpack it; else " if source.path.is_file() else ""
    raise InputError(
        f"{source.path}: holds no events (files such as event000001000-hits.csv.gz or, in a "
        f"folder, ColliderML's tracker_hits/*.parquet); {unpack}name the folder or zip archive "
        "that holds events, or make some with 'bigtrk simulate'"
    )


def _file_of(source: Source, name: str, spec: TableSpec) -> str | None:
    found = (source.find(f"{name}-{stem}.csv") for stem in spec.stems)
    return next((file for file in found if file), None)


def check_unique(table: Columns, key: str, where: str) -> None:
    """Raises InputError if column `key` holds an id twice."""
    ids = table[key].astype(np.int64, copy=False)
    if (ids[1:] > ids[:-1]).all():  # as in most files: no sort is needed
        return
    _, first = np.unique(ids, return_index=True)
    for row in np.setdiff1d(np.arange(len(ids)), first)[:1].tolist():
        fail_at(where, row, f"{key} {ids[row]} appears a second time", "remove one of the rows")


def check_known(
    table: Columns,
    key: str,
    where: str,
    known: NDArray[np.generic],
    where_known: str,
    named: str | None = None,
) -> None:
    """Raises InputError if an id in column `key` is not among `known`, the ids of another table.

    named: the id's name in the files; by default `key`.
    """
    ids = table[key]
    if np.array_equal(ids, known):
        return
    remedy = "the two files may be of different events: give both of one event, or remove the row"
    for row in np.flatnonzero(~np.isin(ids, known))[:1].tolist():
        fail_at(where, row, f"{named or key} {ids[row]} is not in {where_known}", remedy)


def _check_whole(listed: NDArray[np.generic], where: str, known: NDArray[np.generic]) -> None:
    """Raises InputError if any of the hits `known` has no row in the truth: a cut-off file."""
    missing = np.setdiff1d(known, listed)
    if len(missing):
        raise InputError(
            f"{where}: {len(missing):,} of {number_of(len(known), 'hit')} have no row (the first: "
            f"hit {missing[0]}); add rows (noise: particle_id {NOISE}), or fetch the file again"
        )


# Level 6 saves 3 % of the bytes for three times the time.
GZIP_LEVEL = 4


def write_event(event: Event, folder: Path, compress: bool = True) -> list[Path]:
    """Writes the tables of `event` as `folder/NAME-TABLE.csv[.gz]`, each atomically.

    Ids are exact. Floats are written in the shortest form that gives the same float32 when read, as
    in TrackML's own files; NaN is written as a blank.
    """
    # Hits are written last: a reader finds an event by its hits file, once all else is there.
    return [
        write_table(columns, folder / f"{event.name}-{table}.csv", compress)
        for table in ("cells", "particles", "truth", "hits")
        if (columns := getattr(event, table)) is not None
    ]


def write_table(columns: Columns, path: Path, compress: bool) -> Path:
    """Writes one table as CSV to `path`, or gzipped to `path`.gz; returns the path written."""
    arrays = {name: _to_arrow(values) for name, values in columns.items()}
    sink = pa.BufferOutputStream()
    options = pa_csv.WriteOptions(quoting_style="none", quoting_header="none")
    pa_csv.write_csv(pa.table(arrays), sink, options)
    content = sink.getvalue().to_pybytes()
    if compress:
        path = path.with_name(path.name + ".gz")
        content = gzip.compress(content, GZIP_LEVEL, mtime=0)
    write_atomically(path, lambda temporary: temporary.write_bytes(content))
    return path


def _to_arrow(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> pa.Array:
    if np.issubdtype(values.dtype, np.floating):
        return pa.array(values.astype(np.float32), from_pandas=True)
    return pa.array(values)
