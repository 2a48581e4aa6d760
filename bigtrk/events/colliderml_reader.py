"""Reads events from a ColliderML sample: Parquet files, a row per event, a list in each column.

Source: the data card of CERN/ColliderML-Release-1. Tables are found wherever their files or folders
have their names: `data/ttbar_pu200_tracker_hits/train-00000-of-01000.parquet` of the release, also
in the cache of the package colliderml; the production's `ttbar.v1.reco.tracker_hits.events0-9.
parquet`; or simply `tracker_hits/*.parquet`. Released files have one row group of a hundred events,
too much to read at once: it is decoded row by row.

A hit's id is its place in the lists of its event, from 0. Particles are numbered from 1, so that 0
is noise here as everywhere: one more than in the sample.
"""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.disk.files import check_file
from bigtrk.disk.parquet import values_of_groups
from bigtrk.disk.unpacking import FREE_BYTES, MAX_RATIO
from bigtrk.errors import InputError, damage_told, one_line
from bigtrk.events.event import MODULE_IDS, NOISE, Columns, Event, TableSpec, event_name, only_event

EVENT_ID = "event_id"
# Columns of measured hits, and those that simulated ones may have, too.
MEASURED_HITS = TableSpec(
    stems=("tracker_hits",),
    ids=("volume_id", "layer_id", "surface_id"),
    finite=("x", "y", "z"),
)
TRACKER_HITS = replace(
    MEASURED_HITS,
    optional_ids=("particle_id",),
    optional_floats=("true_x", "true_y", "true_z"),
)
PARTICLES = TableSpec(
    stems=("particles",),
    ids=("particle_id",),
    floats=("vx", "vy", "vz", "px", "py", "pz", "charge"),
    optional_ids=("pdg_id", "num_tracker_hits", "primary"),
)
# The names that these columns have in an `Event`; others keep theirs.
OURS = {
    "surface_id": "module_id",
    "true_x": "tx",
    "true_y": "ty",
    "true_z": "tz",
    "charge": "q",
    "pdg_id": "particle_type",
    "num_tracker_hits": "nhits",
}
_TABLE = re.compile(r"(?:^|[._-])(tracker_hits|particles)(?=[._-]|$)")


class StoredFile(NamedTuple):
    """A file's path, size and time of change; if either changes, its content is read again."""

    path: Path
    size: int  # bytes
    modified: int  # ns


def particle_numbers(stored: NDArray[np.generic]) -> NDArray[np.int64]:
    """Converts the sample's particle ids to bigtrk's, which are larger by one: [M] -> [M]. The
    sample's 2^64 - 1 (no particle) becomes 0. Ids beyond 2^63 - 2, and only these, become negative.
    """
    return (stored.astype(np.uint64) + np.uint64(1)).astype(np.int64)


def stored_particle_ids(ours: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Converts bigtrk's particle ids to the sample's; inverts `particle_numbers`: [M] -> [M]."""
    return ours.astype(np.uint64) - np.uint64(1)


BUFFER_BYTES = 1 << 20  # read of a column at a time; without it, a whole row group


@dataclass(frozen=True)
class Place:
    """The place of an event: row `row` of row group `group`, which is row `number` of the file.

    columns: the columns to read. size: bytes per row in this group.
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
    """Reads a Parquet file row by row, some columns only."""

    def __init__(self, file: StoredFile, columns: tuple[str, ...]) -> None:
        self._file = pq.ParquetFile(file.path, buffer_size=BUFFER_BYTES)
        self._columns = list(columns)
        self._group, self._next = -1, 0
        self._rows: Iterator[pa.RecordBatch] = iter(())
        self._one_reader = Lock()

    def row(self, place: Place) -> pa.RecordBatch:
        """Decodes and returns the row at `place`. A row group is decoded from its start, or from
        the last row returned, if `place` comes later in the same group.
        """
        with self._one_reader:
            if place.group != self._group or place.row < self._next:
                groups = [place.group]
                self._rows = self._file.iter_batches(1, groups, self._columns, use_threads=False)
                self._group, self._next = place.group, 0
            skipped = place.row - self._next
            self._group = -1  # after an error, the group is read from its start
            found = next(islice(self._rows, skipped, None))
            self._group, self._next = place.group, place.row + 1
            return found


# Keeps four files open: hits and particles of two samples.
_stream = lru_cache(maxsize=4)(RowStream)


def _damage_told(file: StoredFile) -> AbstractContextManager[None]:
    return damage_told(
        f"{file.path}: is not a readable Parquet file", "it may be truncated: fetch it again"
    )


WIDEST = 8  # bytes of a value
# Track files identify an event by the number in its name, at most 18 digits.
LAST_EVENT = 10**18 - 1


@lru_cache(maxsize=8)
def find_rows(files: tuple[StoredFile, ...], spec: TableSpec) -> dict[int, Place]:
    """Finds where the files of a table store each event: event number -> place, ascending."""
    places: dict[int, Place] = {}
    for file in files:
        for event, place in _rows_of(file, spec):
            other = places.setdefault(event, place)
            if other is not place:
                raise InputError(
                    f"{place.where(event)}: event_id {event} is also in {other.file.path}, row "
                    f"{other.number + 1}; if the files are of two samples, name one sample, such "
                    "as FOLDER/ttbar_pu200; else remove one of the rows"
                )
    return dict(sorted(places.items()))


def _rows_of(file: StoredFile, spec: TableSpec) -> Iterator[tuple[int, Place]]:
    with _damage_told(file), file.path.open("rb") as handle:
        # A few packed bytes can expand to any number of equal values.
        most = max(values_of_groups(handle), default=0)
        if most * WIDEST > max(FREE_BYTES, MAX_RATIO * file.size):
            raise InputError(
                f"{file.path}: claims {most:,} values, too many for its {file.size:,} bytes; "
                "write it again without compression and dictionary encoding"
            )
        opened = pq.ParquetFile(file.path)
        columns = _present(opened.schema_arrow, spec, file)
        column = opened.read([EVENT_ID], use_threads=False).column(EVENT_ID)
        groups = [opened.metadata.row_group(g) for g in range(opened.metadata.num_row_groups)]
    if (told := sum(group.num_rows for group in groups)) != len(column):
        raise InputError(
            f"{file.path}: its row groups claim {told:,} rows, but it holds {len(column):,}; it "
            "is damaged: fetch it again"
        )
    number, events = 0, column.to_pylist()
    for group, found in enumerate(groups):
        size = found.total_byte_size // max(found.num_rows, 1)
        for row in range(found.num_rows):
            event = events[number]
            if event is None or not 0 <= event <= LAST_EVENT:
                raise InputError(
                    f"{file.path}, row {number + 1}: event_id is {event}, not a number from 0 to "
                    f"{LAST_EVENT}; correct it"
                )
            yield event, Place(file, columns, group, row, number, size)
            number += 1


def _present(schema: pa.Schema, spec: TableSpec, file: StoredFile) -> tuple[str, ...]:
    """Lists the columns of `spec` in a table; InputError if one is missing or of a wrong type."""
    required = (EVENT_ID, *spec.required)
    if missing := [name for name in required if name not in schema.names]:
        raise InputError(
            f"{file.path}: missing column {', '.join(missing)}; ColliderML's {spec.stems[0]} need "
            f"{', '.join(required)}, as of its Release 1: fetch the file again, or rename its "
            f"columns"
        )
    wanted = (*required, *spec.optional_ids, *spec.optional_floats)
    present = [name for name in wanted if name in schema.names]
    for name in present:
        if schema.names.count(name) > 1:
            raise InputError(f"{file.path}: column {name} appears twice; remove one of the two")
        kind = schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        values = kind.value_type if is_list else kind
        fits = pa.types.is_float32(values) or pa.types.is_float64(values)
        needed = "a list of float32 or float64"
        if name in (EVENT_ID, *spec.ids, *spec.optional_ids):
            is_flag = name == "primary" and pa.types.is_boolean(values)  # 0 or 1 here
            fits = pa.types.is_integer(values) or is_flag
            needed = "one integer" if name == EVENT_ID else "a list of integers"
        if not fits or is_list == (name == EVENT_ID):
            raise InputError(
                f"{file.path}: column {name} holds {one_line(str(kind))}, not {needed} per row; "
                f"convert it"
            )
    return tuple(name for name in present if name != EVENT_ID)


FIX = "correct the value, or fetch the file again"
EMPTY = "remove the row, build the others with --events, or use the event for inference only"
UNLISTED = np.int64(1)  # the sample's id 0: no particle, unless the particle table lists it


@dataclass(frozen=True)
class _Row:
    """The columns of one event, all of one length, by bigtrk's names."""

    where: str
    columns: Columns

    def fail(self, name: str, problem: str, remedy: str) -> NoReturn:
        raise InputError(f"{self.where}: {name} {problem}; {remedy}")


def _read_row(place: Place, event: int, spec: TableSpec) -> _Row:
    with _damage_told(place.file):
        batch = _stream(place.file, place.columns).row(place)
    row = _Row(place.where(event), {})
    first = batch.schema.names[0]
    for name in batch.schema.names:
        column = batch.column(name)
        if column.null_count:
            row.fail(name, "is null", "write a list of its values, an empty one if there are none")
        values, wanted = column.flatten(), len(batch.column(first).flatten())
        if len(values) != wanted:
            problem = f"has {len(values)} values where {first} has {wanted}"
            row.fail(name, problem, "write lists of equal length in a row, or fetch the file again")
        row.columns[OURS.get(name, name)] = _values(values, name, spec, row)
    return row


def _values(values: pa.Array, name: str, spec: TableSpec, row: _Row) -> NDArray[np.generic]:
    if values.null_count and name == "particle_id" and name in spec.optional_ids:
        # Joins of polars and pandas leave nulls where no particle is; -1 is 2^64 - 1 unsigned.
        values = values.cast(pa.int64(), safe=False).fill_null(-1)
    if values.null_count:
        place = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        row.fail(name, f"is null at place {place} of its list", FIX)
    found: NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    if name in spec.finite and len(bad := np.flatnonzero(~np.isfinite(found))):
        row.fail(name, f"is {found[bad[0]]} at place {bad[0]} of its list", FIX)
    if found.dtype.kind == "f":
        return found.astype(np.float64)
    ids = particle_numbers(found) if name == "particle_id" else found.astype(np.int64)
    if name != "pdg_id" and len(bad := np.flatnonzero(ids < 0)):
        problem = f"is {found[bad[0]]} at place {bad[0]} of its list, not from 0 to 2^63 - 2"
        row.fail(name, problem, FIX)
    return ids


def _particles(sample: "Sample", event: int) -> _Row:
    if event not in (places := find_rows(sample.particles, PARTICLES)):
        raise InputError(
            f"{sample.path}: the hits of event {event} have particles, but no file of particles "
            "has this event; fetch its file of particles, and name the folder that holds both files"
        )
    row = _read_row(places[event], event, PARTICLES)
    ids = row.columns["particle_id"]
    _, first = np.unique(ids, return_index=True)
    for again in np.setdiff1d(np.arange(len(ids)), first)[:1].tolist():
        problem = f"is {int(ids[again].item()) - 1} again at place {again} of its list"
        row.fail("particle_id", problem, "list each particle once")
    return row


@dataclass(frozen=True)
class Sample:
    """The files of a sample, each list ascending by path; `particles` is empty if it has none."""

    path: Path
    hits: tuple[StoredFile, ...]
    particles: tuple[StoredFile, ...]

    def events(self) -> list[str]:
        return list(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each event's hits, by name: a mean over its row group."""
        places = find_rows(self.hits, MEASURED_HITS)
        if not places:
            raise InputError(
                f"{self.path}: its files of tracker_hits have no rows; fetch them again, or name "
                "another folder"
            )
        return {event_name(event): place.size for event, place in places.items()}

    def read(self, name: str | None, with_truth: bool) -> Event:
        name = name or only_event(self.events(), self.path)
        spec = TRACKER_HITS if with_truth else MEASURED_HITS
        places = find_rows(self.hits, spec)
        digits = name.removeprefix("event")
        number = int(digits) if digits.isdecimal() else -1
        if number not in places or event_name(number) != name:
            known = self.events()
            raise InputError(
                f"{self.path}: its files of tracker_hits have no event '{name}'; name one of "
                f"{known[0]} ... {known[-1]}"
            )
        row = _read_row(places[number], number, spec)
        hit_id = np.arange(len(row.columns["x"]))
        hits: Columns = {"hit_id": hit_id} | {
            n: row.columns[n] for n in ("x", "y", "z", *MODULE_IDS)
        }
        if with_truth and not len(hit_id):
            row.fail("x", "is an empty list", EMPTY)
        if "particle_id" not in row.columns:
            return Event(name, hits)
        particles = _particles(self, number)
        particle = row.columns["particle_id"].astype(np.int64, copy=False)
        # Other ids that the particle table lacks are kept, as in the metrics of ColliderML's task.
        if UNLISTED not in particles.columns["particle_id"]:
            particle = np.where(particle == UNLISTED, NOISE, particle)
        truth: Columns = {"hit_id": hit_id, "particle_id": particle}
        truth |= {n: row.columns[n] for n in ("tx", "ty", "tz") if n in row.columns}
        return Event(name, hits, particles=particles.columns, truth=truth, where=row.where)


def find_sample(path: Path) -> Sample | None:
    """Finds a sample's files of hits and particles below a folder; None if there are no hits.

    `path` may also be the common beginning of several folders' names: `data/ttbar_pu200` stands for
    `data/ttbar_pu200_tracker_hits` and `data/ttbar_pu200_particles`. InputError if `path` is one of
    a sample's files, or a file of the sample cannot be read.
    """
    if path.is_file() and path.suffix == ".parquet":
        raise InputError(
            f"{path}: is one file of a sample; name the folder of both tracker_hits and particles"
        )
    roots = [path]
    if not path.is_dir():
        named = path.parent.glob(f"{glob.escape(path.name)}_*") if path.parent.is_dir() else ()
        roots = sorted(one for one in named if _TABLE.search(one.name) and one.is_dir())
    files: dict[str, list[StoredFile]] = {"tracker_hits": [], "particles": []}
    for root in roots:
        for file in _parquet_files(root):
            # The name of the file, or else of its nearest folder, tells its table.
            parts = (file.name, *reversed(file.relative_to(root).parts[:-1]), root.name)
            if table := next((match[1] for part in parts if (match := _TABLE.search(part))), None):
                check_file(file)
                status = file.stat()
                files[table].append(StoredFile(file, status.st_size, status.st_mtime_ns))
    hits, particles = map(tuple, files.values())
    return Sample(path, hits, particles) if hits else None


def _parquet_files(root: Path) -> list[Path]:
    """Lists the Parquet files below a folder, ascending. It follows linked folders, each once, and
    skips hidden files and folders, such as macOS's "._name" and the copies that notebooks keep.
    """
    files: list[Path] = []
    seen = set()
    for folder, inner, names in os.walk(root, followlinks=True):
        if (place := os.path.realpath(folder)) in seen:
            inner.clear()
            continue
        seen.add(place)
        inner[:] = [name for name in sorted(inner) if name[0] != "."]
        parquet = (name for name in names if name.endswith(".parquet") and name[0] != ".")
        files.extend(Path(folder, name) for name in parquet)
    return sorted(files)
