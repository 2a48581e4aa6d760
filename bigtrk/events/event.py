"""The tables of one collision event as numpy columns, and the formats in which they are written."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError

# A table: column name -> [rows]; ids int64, positions and momenta float64 (mm, GeV).
Columns = dict[str, NDArray[np.generic]]

NOISE = 0  # particle_id of a hit that no particle made


@dataclass(frozen=True, eq=False)  # arrays have no one answer to ==
class Event:
    """The tables of one event in TrackML's column names.

    hits: hit_id [N] int64, x y z [N] float64 (mm), volume_id layer_id module_id [N] int64.
    cells: hit_id ch0 ch1 [C] int64, value [C] float64.
    particles: particle_id [P] int64, vx vy vz (mm) px py pz (GeV) q [P] float64 and, where known,
    particle_type (PDG code) nhits primary (1, else 0) [P] int64.
    truth: hit_id particle_id [T] int64 and, where known, tx ty tz (mm) tpx tpy tpz (GeV) weight.
    where: the file and row of the event, for messages, where a reader knows them.
    """

    name: str  # "event000001000"
    hits: Columns
    cells: Columns | None = None
    particles: Columns | None = None
    truth: Columns | None = None
    where: str = field(default="", kw_only=True)


def only_event(events: list[str], path: Path) -> str:
    """Returns the single name in `events`; InputError if there are several events at `path`."""
    if len(events) > 1:
        raise InputError(
            f"{path}: holds {len(events)} events, {events[0]} to {events[-1]}; name one of them"
        )
    return events[0]


def event_name(number: int) -> str:
    """Returns the name of event `number`, as TrackML's files have it: "event000001000"."""
    return f"event{number:09d}"


@dataclass(frozen=True, eq=False)
class TableSpec:
    """The columns that one table must and may have.

    ids: required, int64, never blank. finite: required, float64, never blank, NaN or infinite.
    floats: required, float64; a blank becomes NaN. optional_ids and optional_floats: as ids and
    floats, but not required. aliases: other producers' names of columns. packed: the column that is
    read if volume_id, layer_id and module_id are absent. maker: whose format it is, for messages.
    """

    stems: tuple[str, ...]  # "hits" in event000001000-hits.csv
    ids: tuple[str, ...]
    finite: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    optional_ids: tuple[str, ...] = ()
    optional_floats: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    packed: str | None = None
    maker: str = "TrackML"

    @property
    def required(self) -> tuple[str, ...]:
        return self.ids + self.finite + self.floats


MODULE_IDS = ("volume_id", "layer_id", "module_id")


class EventFormat(StrEnum):
    """The file formats for simulated events (`bigtrk.events.reader` lists those that it reads)."""

    TRACKML = "trackml"
    COLLIDERML = "colliderml"
