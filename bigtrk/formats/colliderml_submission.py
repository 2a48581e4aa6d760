"""Tracks as a submission to ColliderML's tracking task."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.console import follow
from bigtrk.disk.files import check_output_name
from bigtrk.errors import InputError
from bigtrk.events.colliderml.layout import stored_particle_ids
from bigtrk.events.event import Event
from bigtrk.events.reader import is_colliderml, read_event
from bigtrk.events.truth import hit_particles
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import (
    TRACKS_FILE,
    SubmittedEvent,
    TrackSource,
    events_by_number,
    open_tracks,
    write_parquet_submission,
)
from bigtrk.tracks.matching import Ids, majority_particles


@dataclass
class Submitted:
    """Counts of a submission: events, rows (one per hit), tracks; left_out: events of the folder
    without tracks, which it does not name.
    """

    events: int = 0
    hits: int = 0
    tracks: int = 0
    left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
        return asdict(self)

    def __str__(self) -> str:
        left_out = f"; {self.left_out} events without tracks are left out" if self.left_out else ""
        return f"{self.events} events, {self.hits:,} hits, {self.tracks:,} tracks{left_out}"


def check_submission_name(out: Path) -> Path:
    """Returns the name of a submission to be written.

    Raises:
        InputError: it is a folder's, or one by which the file would not be read as a submission.
    """
    if TRACKS_FILE.fullmatch(out.name):
        raise InputError(
            f"{out}: would not be read as a submission, since its name is that of one event's "
            "tracks; name it otherwise, such as mine.parquet"
        )
    return check_output_name(out, ".parquet")


def submit_tracks(tracks: Path, events: Path, out: Path, majority: bool = False) -> Submitted:
    """Writes a row for each hit of the events that have tracks, atomically: those in no track have
    NO_TRACK. tracks: as of `open_tracks`. majority: also the particle that made most of each track,
    by the truth of `events`.

    Raises:
        InputError: files are damaged, tracks are of an event or of hits that `events` lacks, or the
            truth is needed and missing; nothing is written.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    made = Submitted(left_out=len(names) - len(source.events))
    rows = _rows(source, names, events, majority, made)
    write_parquet_submission(check_submission_name(out), rows, majority)
    return made


def _rows(
    source: TrackSource, names: dict[int, str], events: Path, majority: bool, made: Submitted
) -> Iterator[SubmittedEvent]:
    """Yields events in ascending order, and counts them in `made`."""
    by_place = is_colliderml(events)
    for number in follow(source.events, len(source.events), "submit"):
        event = read_event(events, names[number], with_truth=majority)
        hit_id = event.hits["hit_id"].astype(np.int64, copy=False)
        track_id = source.read(number).of_hits(hit_id)
        claimed = _claimed(event, track_id, by_place) if majority else None
        made.events += 1
        made.hits += len(hit_id)
        made.tracks += len(np.unique(track_id[track_id != NO_TRACK]))
        yield SubmittedEvent(number, hit_id, track_id, claimed)


def _claimed(event: Event, track_id: Ids, by_place: bool) -> Ids:
    """Returns the particle of each hit's track as the sample numbers it: from 0 if `by_place`,
    where -1 is none.
    """
    named = majority_particles(track_id, hit_particles(event))
    return stored_particle_ids(named).astype(np.int64) if by_place else named
