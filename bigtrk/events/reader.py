"""Events from a folder or a zip archive, validated: TrackML's files, or a ColliderML sample."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigtrk.disk.files import by_numbers
from bigtrk.errors import InputError
from bigtrk.events.archives import Source, open_source
from bigtrk.events.colliderml import reader as colliderml
from bigtrk.events.colliderml.layout import Sample, find_sample
from bigtrk.events.columns import CELLS, DETECTORS, HITS, PARTICLES, TRUTH, TableSpec
from bigtrk.events.event import Columns, Event
from bigtrk.events.tables import fail_at, parse_table
from bigtrk.events.truth import warn_of_odd_truth

EVENT_FILE = re.compile(r"(event\d+)-([a-z_]+)\.csv(\.gz)?")
HITS_FILE = re.compile(r"(event\d+)-hits\.csv(\.gz)?")
DETECTORS_FILE = "detectors.csv"


def find_events(path: Path, numbers: range | None = None) -> list[str]:
    """Returns the names of the events in a folder or zip archive, sorted: "event000001000", ...

    numbers: of the events that are wanted, all by default.

    Raises:
        InputError: `path` is neither, or holds no event, or none of the wanted ones.
    """
    sample = _sample_at(path)
    names = colliderml.find_events(sample) if sample else _events_of(open_source(path))
    if numbers is None:
        return names
    chosen = [name for name in names if int(name.removeprefix("event")) in numbers]
    if not chosen:
        raise InputError(
            f"{path}: none of its {len(names)} events, {names[0]} to {names[-1]}, has a number "
            f"from {numbers[0]} to {numbers[-1]}; give others"
        )
    return chosen


def event_sizes(path: Path) -> dict[str, int]:
    """Returns the bytes of the hits of each event in a folder or zip archive, by name, sorted: a
    measure of the work before an event is read.

    Raises:
        InputError: `path` is neither, or holds no event.
    """
    if sample := _sample_at(path):
        return colliderml.event_sizes(sample)
    source = open_source(path)
    found = ((name, _file_of(source, name, HITS)) for name in _events_of(source))
    files = {name: file for name, file in found if file}
    return dict(zip(files, source.sizes(list(files.values())), strict=True))


def is_colliderml(path: Path) -> bool:
    """Says whether a folder holds a ColliderML sample, and no TrackML events."""
    return _sample_at(path) is not None


def read_event(path: Path, name: str | None = None, with_truth: bool = True) -> Event:
    """Reads and validates one event.

    `path` is a folder or zip archive that holds event `name` (which may be omitted where there
    is only one), one of the event's files, a prefix such as `DIR/event000001000`, or the folder
    of a ColliderML sample. Tables other than hits are None where their file is absent; particles
    and truth are also where they are not to be read (`with_truth`), and then the event may have no
    hits.

    Raises:
        InputError: there is no such event, or a table is damaged, incomplete or inconsistent.
    """
    if sample := _sample_at(path):
        if name is None:
            name = _only(colliderml.find_events(sample), path)
        event = colliderml.read_event(sample, name, with_truth)
        warn_of_odd_truth(event, f"{path}, {name}")
        return event
    path, name = _split_prefix(path, name)
    source = open_source(path)
    if name is None:
        name = _only(_events_of(source), path)
    files = {spec: _file_of(source, name, spec) for spec in (HITS, CELLS, PARTICLES, TRUTH)}
    if files[HITS] is None:
        raise InputError(
            f"{path}: has no {name}-hits.csv or {name}-hits.csv.gz; add it, or name another event"
        )
    if not with_truth:
        files[PARTICLES] = files[TRUTH] = None
    # Unpacking and parsing release the interpreter lock: a third off on two cores.
    with ThreadPoolExecutor(len(files)) as pool:
        tables = pool.map(
            lambda spec: _read_table(source, files[spec], spec, may_be_empty=not with_truth), files
        )
        hits, cells, particles, truth = tables
    assert hits is not None
    _check_unique(hits.columns, "hit_id", hits.where)
    if particles is not None:
        _check_unique(particles.columns, "particle_id", particles.where)
    for table in (truth, cells):
        if table is not None:
            _check_hits_exist(table, hits)
    others = (table.columns if table else None for table in (cells, particles, truth))
    event = Event(name, hits.columns, *others)
    warn_of_odd_truth(event, f"{path}, {name}")
    return event


def has_detectors(path: Path) -> bool:
    """Says whether a module table lies beside the events of a folder or zip archive."""
    return path.exists() and open_source(path).find(DETECTORS_FILE) is not None


def read_detectors(path: Path) -> Columns:
    """Reads the module table `detectors.csv` beside the events: one row per module.

    volume_id layer_id module_id [M] int64; cx cy cz, the half widths module_minhu module_maxhu
    module_hv, module_t, pitch_u pitch_v (mm) and the rotation rot_xu ... rot_zw [M] float64.

    Raises:
        InputError: the file is missing, damaged or incomplete.
    """
    path, _ = _split_prefix(path, None)
    source = open_source(path)
    file = source.find(DETECTORS_FILE)
    if file is None:
        raise InputError(
            f"{path}: holds no detectors.csv or detectors.csv.gz; copy the detector file of the "
            "data set there"
        )
    return parse_table(source.read(file), DETECTORS, source.where(file))


def _split_prefix(path: Path, name: str | None) -> tuple[Path, str | None]:
    """Splits `DIR/event1-hits.csv` and `DIR/event1` into (`DIR`, `event1`)."""
    if path.is_dir():
        return path, name
    match = EVENT_FILE.fullmatch(path.name)
    if match:
        return path.parent, match[1]
    if not path.exists() and re.fullmatch(r"event\d+", path.name):
        return path.parent, path.name
    if path.name in (DETECTORS_FILE, f"{DETECTORS_FILE}.gz"):
        return path.parent, name
    return path, name


def _events_of(source: Source) -> list[str]:
    matches = (HITS_FILE.fullmatch(file) for file in source.members)
    events = sorted({match[1] for match in matches if match}, key=by_numbers)
    archives = sorted(file for file in source.members if file.endswith(".zip"))
    if archives and not events:
        unpack = "unpack it and " if source.path.is_file() else ""
        raise InputError(
            f"{source.path}: holds no events, but archives such as {archives[0]}; {unpack}name one "
            "of them"
        )
    if not events:
        raise InputError(
            f"{source.path}: holds no events (files such as event000001000-hits.csv.gz or, in a "
            "folder, ColliderML's tracker_hits/*.parquet); unpack Parquet, name the folder or zip "
            "archive that holds some, or make some with 'bigtrk simulate'"
        )
    return events


def _only(events: list[str], path: Path) -> str:
    if len(events) > 1:
        raise InputError(
            f"{path}: holds {len(events)} events; name one of {events[0]} ... {events[-1]}"
        )
    return events[0]


def _sample_at(path: Path) -> Sample | None:
    """Finds the ColliderML sample at `path`; None where there is none, or are TrackML events."""
    if path.is_dir() and any(HITS_FILE.fullmatch(entry.name) for entry in path.iterdir()):
        return None
    return find_sample(path)


def _file_of(source: Source, name: str, spec: TableSpec) -> str | None:
    found = (source.find(f"{name}-{stem}.csv") for stem in spec.stems)
    return next((file for file in found if file), None)


@dataclass(frozen=True)
class _Table:
    columns: Columns
    where: str


def _read_table(
    source: Source, file: str | None, spec: TableSpec, may_be_empty: bool
) -> _Table | None:
    if file is None:
        return None
    where = source.where(file)
    return _Table(parse_table(source.read(file), spec, where, may_be_empty), where)


def _check_unique(table: Columns, key: str, where: str) -> None:
    ids = table[key].astype(np.int64, copy=False)
    # Files are mostly in order of their ids, which proves uniqueness without a sort.
    if (ids[1:] > ids[:-1]).all():
        return
    _, first = np.unique(ids, return_index=True)
    if len(first) == len(ids):
        return
    repeats = np.ones(len(ids), dtype=bool)
    repeats[first] = False
    row = int(np.flatnonzero(repeats)[0])
    fail_at(where, row, f"{key} {ids[row]} appears again", "each may appear once: remove a row")


def _check_hits_exist(table: _Table, hits: _Table) -> None:
    ids, known = table.columns["hit_id"], hits.columns["hit_id"]
    if np.array_equal(ids, known):
        return
    unknown = ~np.isin(ids, known)
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        fail_at(
            table.where,
            row,
            f"hit_id {ids[row]} is not in {hits.where}",
            "the two files may be of different events: fetch both again, or remove the row",
        )
