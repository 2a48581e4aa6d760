"""Finds, reads and validates events in a folder or zip archive, in any format of `READERS`."""

from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

import numpy as np

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.truth import warn_of_odd_truth


class EventSource(Protocol):
    """The events at one path, in one format. Methods raise InputError for missing or bad files."""

    def events(self) -> list[str]:
        """Lists the names of the events, sorted: "event000001000", ..."""

    def sizes(self) -> dict[str, int]:
        """Returns the size of each event's hits in bytes, by name, sorted."""

    def read(self, name: str | None, with_truth: bool) -> Event:
        """Reads and validates one event; `name` may be None if there is only one."""


# The function of each format, `module:function`, that finds events at a path, or returns None. The
# first that finds some reads them (docs/adding/reader.md). They are imported when called.
READERS = {
    "acts": "bigtrk.events.acts:find_acts",  # first: its folders may also hold a hits.csv
    "trackml": "bigtrk.events.trackml:find_trackml",
    "colliderml": "bigtrk.events.colliderml_reader:find_sample",
}


def format_of(path: Path) -> str:
    """Returns the name in `READERS` of the format of the events at `path`."""
    return _source_at(path)[0]


def _source_at(path: Path) -> tuple[str, EventSource]:
    for name, function in READERS.items():
        if source := resolve_name(function)(path):
            return name, source
    # TrackML's reader also takes archives and single files, and reports what is missing.
    return "trackml", resolve_name("bigtrk.events.trackml:TrackmlEvents")(path)


def find_events(path: Path, numbers: range | None = None) -> list[str]:
    """Returns the names of the events in a folder or zip archive, sorted: "event000001000", ...

    numbers: selects events by number; all by default. Raises InputError if `path` is neither, or
    holds no event, or none of the selected ones.
    """
    names = _source_at(path)[1].events()
    if numbers is None:
        return names
    chosen = [name for name in names if int(name.removeprefix("event")) in numbers]
    if not chosen:
        raise InputError(
            f"{path}: none of its {len(names)} events, {names[0]} to {names[-1]}, has a number "
            f"from {numbers[0]} to {numbers[-1]}; give other numbers"
        )
    return chosen


def event_sizes(path: Path) -> dict[str, int]:
    """Returns the size in bytes of each event's hits, by name, sorted. It estimates the work that
    an event takes before it is read. path: a folder or zip archive.
    """
    return _source_at(path)[1].sizes()


def read_event(path: Path, name: str | None = None, with_truth: bool = True) -> Event:
    """Reads and validates one event.

    `path` is a folder or zip archive that holds event `name` (which may be left out if there is
    only one), one of the event's files, a prefix such as `DIR/event000001000`, or the folder of a
    ColliderML sample. Tables other than hits are None if their file is absent; particles and truth
    are also None unless `with_truth`. An event must have hits only if `with_truth`. Raises
    InputError if there is no such event, or a table is damaged, incomplete or inconsistent.
    """
    event = _source_at(path)[1].read(name, with_truth)
    where = event.where or f"{path}, {event.name}"
    for axis in "xyz":  # a user's own reader may not check this
        if len(bad := np.flatnonzero(~np.isfinite(event.hits[axis].astype(np.float64)))):
            raise InputError(
                f"{where}: {axis} of hit {event.hits['hit_id'][bad[0]]} is not a finite number; "
                f"correct or remove the hit"
            )
    warn_of_odd_truth(event, where)
    return event
