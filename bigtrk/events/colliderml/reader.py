"""Events of a ColliderML sample.

A hit's id is its place in the lists of its event, from 0. Particles are numbered from 1, so that 0
is noise here as everywhere: one more than in the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigtrk.console import warn_once
from bigtrk.errors import InputError
from bigtrk.events.colliderml.index import find_rows
from bigtrk.events.colliderml.layout import (
    MEASURED_HITS,
    OURS,
    PARTICLES,
    TRACKER_HITS,
    Sample,
    particle_numbers,
)
from bigtrk.events.colliderml.rows import Place, read_row
from bigtrk.events.columns import MODULE_IDS, TableSpec
from bigtrk.events.event import NOISE, Columns, Event, event_name

FIX = "correct the value, or fetch the file again"
EMPTY = "remove the row, build the others with --events, or use the event for inference only"
UNLISTED = np.int64(1)  # the sample's 0: a particle if the particles list it, else none


def find_events(sample: Sample) -> list[str]:
    """Returns the names of a sample's events, ascending by number: "event000090000", ...

    Raises:
        InputError: a file of hits is damaged, or two rows are of one event.
    """
    return list(event_sizes(sample))


def event_sizes(sample: Sample) -> dict[str, int]:
    """Returns the bytes of the hits of each event by name, the mean over the events of a row
    group: a measure of the work before an event is read.

    Raises:
        InputError: as of `find_events`.
    """
    places = find_rows(sample.hits, MEASURED_HITS)
    if not places:
        raise InputError(
            f"{sample.path}: its files of tracker_hits have no rows; fetch them again, or name "
            "another folder"
        )
    return {event_name(event): place.size for event, place in places.items()}


def read_event(sample: Sample, name: str, with_truth: bool) -> Event:
    """Reads and validates one event: hits, and particles and truth where the hits know them, unless
    they are not to be read (`with_truth`); then the event may have no hits.

    Raises:
        InputError: there is no such event, or a file is damaged or a row of it bad.
    """
    spec = TRACKER_HITS if with_truth else MEASURED_HITS
    places = find_rows(sample.hits, spec)
    digits = name.removeprefix("event")
    number = int(digits) if digits.isdecimal() else -1
    if number not in places or event_name(number) != name:
        known = find_events(sample)
        raise InputError(
            f"{sample.path}: its files of tracker_hits have no event {name}; name one of "
            f"{known[0]} ... {known[-1]}"
        )
    row = _read_row(places[number], number, spec)
    hits = _columns(row, ("x", "y", "z", *MODULE_IDS))
    if with_truth and not row.length:
        row.fail("x", "is an empty list", EMPTY)
    if "particle_id" not in row.columns:
        return Event(name, hits)
    particles = _particles(sample, number)
    return Event(name, hits, particles=particles.columns, truth=_truth(row, particles))


@dataclass(frozen=True)
class _Row:
    """The lists of one row, all of one length, by the names that they have here."""

    where: str
    columns: Columns

    @property
    def length(self) -> int:
        return len(next(iter(self.columns.values())))

    def fail(self, name: str, problem: str, remedy: str) -> NoReturn:
        raise InputError(f"{self.where}: {name} {problem}; {remedy}")


def _read_row(place: Place, event: int, spec: TableSpec) -> _Row:
    batch = read_row(place)
    row = _Row(place.where(event), {})
    lengths = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if column.null_count:
            row.fail(name, "is null", "write a list of its values, an empty one if there are none")
        lengths[name] = len(column.flatten())
        row.columns[OURS.get(name, name)] = _values(column.flatten(), name, spec, row)
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            problem = f"has {length} values where {first} has {lengths[first]}"
            row.fail(name, problem, "write lists of one length in a row, or fetch the file again")
    return row


def _values(values: pa.Array, name: str, spec: TableSpec, row: _Row) -> NDArray[np.generic]:
    if values.null_count and name == "particle_id" and name in spec.optional_ids:
        # What a join finds no particle for is null in polars and pandas; -1 is 2^64 - 1 unsigned.
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


def _columns(row: _Row, names: Sequence[str]) -> Columns:
    """Returns the ids of hits, and those of the named columns that there are."""
    found: Columns = {"hit_id": np.arange(row.length)}
    return found | {name: row.columns[name] for name in names if name in row.columns}


def _truth(hits: _Row, particles: _Row) -> Columns:
    """Returns the truth of hits. Those of particles that are not listed, as where the list was
    pruned, keep them, as the task's metrics do: nothing else is known of these particles.
    """
    particle = hits.columns["particle_id"].astype(np.int64, copy=False)
    unknown = (particle != NOISE) & ~np.isin(particle, particles.columns["particle_id"])
    particle = np.where(unknown & (particle == UNLISTED), NOISE, particle)
    unlisted = particle[unknown & (particle != NOISE)]
    if len(unlisted):
        warn_once(
            "particles that are not listed",
            f"{hits.where}: {len(unlisted):,} of {hits.length:,} hits are of "
            f"{len(np.unique(unlisted)):,} particles that are not in {particles.where}; momentum "
            "and vertex of such particles, here and in other events, are unknown",
        )
    return _columns(hits, ("tx", "ty", "tz")) | {"particle_id": particle}


def _particles(sample: Sample, event: int) -> _Row:
    if event not in (places := find_rows(sample.particles, PARTICLES)):
        raise InputError(
            f"{sample.path}: no file of particles has event {event}, whose hits name theirs; fetch "
            "its particles too and name the folder that holds both"
        )
    row = _read_row(places[event], event, PARTICLES)
    ids = row.columns["particle_id"]
    listed, first = np.unique(ids, return_index=True)
    if len(listed) < len(ids):
        again = int(np.setdiff1d(np.arange(len(ids)), first)[0])
        stored = int(ids[again].item()) - 1
        problem = f"is {stored} again at place {again} of its list"
        row.fail("particle_id", problem, "list each particle once")
    return row
