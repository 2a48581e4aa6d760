"""Reads events from a folder of ACTS's CSV tables, in today's layout and in the older one.

Today: `event*-measurements.csv` with global positions; truth is `event*-hits.csv`, the simulated
hits, with `event*-measurement-simhit-map.csv`; `event*-particles_simulated.csv` and
`event*-cells.csv` if they are there. If there are only simulated hits, they are read as hits at
their true positions; also `hits.csv` and `particles.csv` without an event's name, as in traccc's
data.

A `hit_id` is the measurement_id or, for simulated hits, the row, from 0: as in ACTS's lists of
tracks. A particle that ACTS identifies by five numbers has one id here: ACTS's older barcode.

Source: CsvMeasurementWriter, CsvSimHitWriter and CsvParticleWriter of ACTS 48.
"""

import gzip
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.console import warn_once
from bigtrk.disk.files import by_numbers
from bigtrk.errors import InputError
from bigtrk.events.archives import Source, open_source
from bigtrk.events.event import MODULE_IDS, Columns, Event, TableSpec, event_name, only_event
from bigtrk.events.trackml import (
    CELLS,
    check_known,
    check_unique,
    fail_at,
    parse_table,
    split_prefix,
)

# The numbers of a particle and their bits in its id, highest first: those of ACTS's older barcode,
# except the sign.
BARCODE = {"pv": 11, "sv": 12, "part": 16, "gen": 8, "subpart": 16}
BARCODE_COLUMNS = tuple(f"particle_id_{part}" for part in BARCODE)

MEASUREMENTS = TableSpec(
    maker="ACTS",
    stems=("measurements",),
    ids=("measurement_id", *MODULE_IDS),
    finite=("global_x", "global_y", "global_z"),
    packed="geometry_id",
)
SIMULATED_HITS = TableSpec(
    maker="ACTS",
    stems=("hits",),
    ids=MODULE_IDS,
    finite=("tx", "ty", "tz"),
    optional_ids=("particle_id", *BARCODE_COLUMNS),
    optional_floats=("tpx", "tpy", "tpz", "deltae"),
    packed="geometry_id",
)
HITS_OF_MEASUREMENTS = TableSpec(
    maker="ACTS", stems=("measurement-simhit-map",), ids=("measurement_id", "hit_id")
)
PARTICLES = TableSpec(
    maker="ACTS",
    stems=("particles_simulated", "particles_initial", "particles"),
    ids=(),
    floats=("vx", "vy", "vz", "px", "py", "pz", "q"),
    optional_ids=("particle_id", *BARCODE_COLUMNS, "particle_type"),
)
ACTS_CELLS = replace(CELLS, maker="ACTS", aliases=CELLS.aliases | {"measurement_id": "hit_id"})
_MEASUREMENTS_FILE = re.compile(r"(event\d+)-measurements\.csv(\.gz)?")
_MAP_FILE = re.compile(r"(event\d+)-measurement-simhit-map\.csv(\.gz)?")
_HITS_FILE = re.compile(r"(?:(event\d+)-)?hits\.csv(\.gz)?")
_ONLY = event_name(0)  # the event of files whose names have no event


def find_acts(path: Path) -> "ActsEvents | None":
    """Finds the ACTS events of a folder, or the one event that `path` names; None without any."""
    folder, name = split_prefix(path, None)
    if not folder.is_dir():
        return None
    source = open_source(folder)
    files = {m[1] for file in source.members if (m := _MEASUREMENTS_FILE.fullmatch(file))}
    for file in source.members:
        if (m := _MAP_FILE.fullmatch(file)) and m[1] not in files:
            raise InputError(
                f"{source.where(file)}: needs {m[1]}-measurements.csv, which is missing; add that "
                f"file, or remove this one"
            )
    if files:
        return ActsEvents(source, "measurements", [name] if name else sorted(files, key=by_numbers))
    hits = {m[1]: file for file in source.members if (m := _HITS_FILE.fullmatch(file))}
    if not hits or not _are_simulated(folder / source.members[next(iter(hits.values()))]):
        return None
    names = sorted({found or _ONLY for found in hits}, key=by_numbers)
    return ActsEvents(source, "hits", [name] if name else names)


@dataclass(frozen=True)
class ActsEvents:
    """The events of a folder, or the one event that `path` named. kind: "measurements" or "hits",
    the stem of the files that list the hits.
    """

    source: Source
    kind: str
    names: list[str]

    def events(self) -> list[str]:
        return self.names

    def sizes(self) -> dict[str, int]:
        return self.source.sizes({name: self._file(name, self.kind) for name in self.names})

    def read(self, name: str | None, with_truth: bool) -> Event:
        path = self.source.path
        name = name or only_event(self.names, path)
        are_simulated, truth, cells = self.kind == "hits", None, None
        spec, prefix = (SIMULATED_HITS, "t") if are_simulated else (MEASUREMENTS, "global_")
        found = self._table(name, spec, may_be_empty=not with_truth)
        if found is None:
            raise InputError(f"{path}: has no {name}-{self.kind}.csv; name one of its events")
        table, where = found
        hit_id = np.arange(len(table["tx"])) if are_simulated else table["measurement_id"]
        hits = {"hit_id": hit_id} | {axis: table[f"{prefix}{axis}"] for axis in "xyz"}
        hits |= {column: table[column] for column in MODULE_IDS}
        if are_simulated and with_truth:
            truth = {"hit_id": hit_id} | _truth_of(table, where)
        if not are_simulated:
            check_unique(table, "measurement_id", where)
            found = self._table(name, ACTS_CELLS, may_be_empty=True)
            if found and len(found[0]["hit_id"]):
                cells = found[0]
                check_known(cells, "hit_id", found[1], hit_id, where, "measurement_id")
            truth = self._truth(name, hit_id, where) if with_truth else None
        return Event(name, hits, cells, self._particles(name) if with_truth else None, truth)

    def _truth(self, name: str, known: NDArray[np.generic], where_known: str) -> Columns | None:
        """Returns the truth: a row for each simulated hit of each measurement in `known`, of merged
        hits the largest deposit first. None if the folder holds no files of truth.
        """
        listed = self._table(name, HITS_OF_MEASUREMENTS, may_be_empty=True)
        found = self._table(name, SIMULATED_HITS, may_be_empty=True)
        if listed is None or found is None:
            if one := listed or found:
                missing = SIMULATED_HITS if listed else HITS_OF_MEASUREMENTS
                raise InputError(
                    f"{one[1]}: needs {name}-{missing.stems[0]}.csv, which is missing; add it, "
                    f"or remove the file named first, to read the event without truth"
                )
            return None
        (pairs, where), (simulated, where_hits) = listed, found
        row, every = pairs["hit_id"].astype(np.int64), np.arange(len(simulated["tx"]))
        check_known(pairs, "hit_id", where, every, f"the {len(every):,} rows of {where_hits}")
        check_known(pairs, "measurement_id", where, known, where_known)
        if len(noise := np.setdiff1d(known, pairs["measurement_id"])):
            warn_once(
                "noise",
                f"{where}: has no row for {len(noise):,} of {len(known):,} measurements (such as "
                f"number {noise[0]}), which become noise; if the file is truncated, fetch it again",
            )
        truth = {"hit_id": pairs["measurement_id"]}
        truth |= {name: values[row] for name, values in _truth_of(simulated, where_hits).items()}
        deposit = simulated["deltae"][row] if "deltae" in simulated else np.zeros(len(row))
        order = np.lexsort((-np.abs(deposit.astype(float)), truth["hit_id"]))
        return {column: values[order] for column, values in truth.items()}

    def _particles(self, name: str) -> Columns | None:
        if (found := self._table(name, PARTICLES, may_be_empty=True)) is None:
            return None
        table, where = found
        particles = {"particle_id": _particle_ids(table, where)}
        check_unique(particles, "particle_id", where)
        kept = (*PARTICLES.floats, *({"particle_type"} & table.keys()))
        return particles | {column: table[column] for column in kept}

    def _table(self, name: str, spec: TableSpec, may_be_empty: bool) -> tuple[Columns, str] | None:
        files = (self._file(name, stem) for stem in spec.stems)
        file = next((file for file in files if file), None)
        if file is None:
            return None
        where = self.source.where(file)
        return parse_table(self.source.read(file), spec, where, may_be_empty), where

    def _file(self, name: str, stem: str) -> str | None:
        file = self.source.find(f"{name}-{stem}.csv")
        return self.source.find(f"{stem}.csv") if file is None and name == _ONLY else file


def _are_simulated(file: Path) -> bool:
    """True if the header of a hits file names true positions and no hit ids."""
    if not file.is_file():
        return False  # reading a pipe would block
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
            header = content.readline(4096).decode("latin-1").strip().split(",")
    except (OSError, EOFError, zlib.error):
        return False  # TrackML's reader reports the error
    return {"tx", "geometry_id"} <= set(header) and "hit_id" not in header


def _truth_of(simulated: Columns, where: str) -> Columns:
    """Makes the truth table of simulated hits, without its column hit_id."""
    names = [name for name in ("tx", "ty", "tz", "tpx", "tpy", "tpz") if name in simulated]
    return {"particle_id": _particle_ids(simulated, where)} | {n: simulated[n] for n in names}


def _particle_ids(table: Columns, where: str) -> NDArray[np.generic]:
    """Returns the particle id of each row, [rows] int64; packs ACTS's five numbers if need be."""
    if "particle_id" in table:
        return table["particle_id"]
    if not set(BARCODE_COLUMNS) <= table.keys():
        raise InputError(
            f"{where}: has neither the column particle_id nor the columns "
            f"{', '.join(BARCODE_COLUMNS)}; write it again with ACTS"
        )
    ids = np.zeros(len(table[BARCODE_COLUMNS[0]]), np.int64)
    for column, bits in zip(BARCODE_COLUMNS, BARCODE.values(), strict=True):
        number = table[column].astype(np.int64)
        if len(bad := np.flatnonzero((number < 0) | (number >= 1 << bits))):
            problem = f"{column} is {number[bad[0]]}, not from 0 to {(1 << bits) - 1}"
            fail_at(where, int(bad[0]), problem, f"renumber {column} in each event")
        ids = ids << bits | number
    return ids
