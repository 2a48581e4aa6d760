"""Writes tracks and scored graphs for other tools: lists of hits, ACTS's CSV, ColliderML's task.

The columns of CSV files are those of ACTS's CsvProtoTrackWriter and CsvGnnGraphReader (2026-08).
Hits keep their ids; ACTS means positions, from 0, among an event's measurements or space points.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from bigtrk.console import follow
from bigtrk.disk.files import check_output_name
from bigtrk.errors import InputError, number_of
from bigtrk.events.colliderml_reader import stored_particle_ids
from bigtrk.events.event import Columns, EventFormat, event_name
from bigtrk.events.reader import format_of, read_event
from bigtrk.events.trackml import write_table
from bigtrk.events.truth import hit_particles
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import (
    TRACKS_FILE,
    SubmittedEvent,
    TrackSource,
    event_number,
    events_by_number,
    open_tracks,
    write_parquet_submission,
    write_rows,
)
from bigtrk.tracks.matching import majority_particles

SCHEMA = pa.schema(
    [("event_id", pa.int64()), ("track_id", pa.int64()), ("hit_ids", pa.list_(pa.int64()))]
)


def write_track_lists(tracks: Path, out: Path) -> None:
    """Writes a Parquet file with event_id, track_id and hit_ids of each track, atomically, event by
    event. A track's hits keep the order of `tracks`; hits in no track are left out.

    tracks: as in `open_tracks`. Raises InputError if there are none, or they are damaged, or `out`
    does not end with .parquet; nothing is written.
    """
    check_output_name(out, ".parquet")
    source = open_tracks(tracks)

    def columns(number: int) -> list[Any]:
        tracks = source.read(number).in_tracks()
        by_track = np.argsort(tracks.track_id, kind="stable")
        track_id, first = np.unique(tracks.track_id[by_track], return_index=True)
        offsets = np.append(first, len(by_track)).astype(np.int32)
        hit_ids = pa.ListArray.from_arrays(offsets, tracks.hit_id[by_track])
        return [np.full(len(track_id), number), track_id, hit_ids]

    write_rows(out, SCHEMA, map(columns, source.events))


def write_prototracks(tracks: Path, out: Path, events: Path) -> list[Path]:
    """Writes `out`/event<id>-prototracks.csv for each event with tracks, each atomically: trackId
    (from 0 on), measurementId (the hit's id) and x, y, z (mm). Returns the paths.

    tracks: as in `open_tracks`. events: the folder or zip archive with the hits' positions. Raises
    InputError if files are damaged, or tracks are of an event or of hits that `events` lacks; those
    written before stay.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    written = []
    for number in source.events:
        event = read_event(events, names[number], with_truth=False)
        track_id = source.read(number).of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
        hits = np.argsort(track_id, kind="stable")[(track_id == NO_TRACK).sum() :]  # by track
        columns = {
            "trackId": np.unique(track_id[hits], return_inverse=True)[1],
            "measurementId": event.hits["hit_id"][hits],
            **{axis: event.hits[axis][hits] for axis in "xyz"},
        }
        path = out / f"{event_name(number)}-prototracks.csv"
        written.append(write_table(columns, path, compress=False))
    return written


def write_gnn_graphs(graphs: Path, out: Path, scorer: Callable[[EventGraph], Tensor]) -> list[Path]:
    """Writes `out`/event<id>-gnn-graph.csv for each graph, each atomically; returns the paths. A
    row is an edge: the ids of its two hits (edge0, edge1) and its score in [0, 1] (weight). Raises
    InputError if the folder or a graph cannot be read, a graph has no ids of its hits, or its name
    has no number; those written before stay.
    """
    folder = GraphFolder(graphs)
    written = []
    for name in folder.events:
        graph = folder.read(name)
        if graph.hit_id is None:
            raise InputError(f"{name} in {graphs}: has no ids of its hits; build it from events")
        source, destination = graph.hit_id.numpy()[graph.edge_index.numpy()]
        columns: Columns = {"edge0": source, "edge1": destination, "weight": scorer(graph).numpy()}
        path = out / f"{event_name(event_number(name))}-gnn-graph.csv"
        written.append(write_table(columns, path, compress=False))
    return written


@dataclass
class Submitted:
    """Counts of a submission, as `--json` prints them. hits: its rows. left_out: events without
    tracks, which the submission leaves out.
    """

    events: int = 0
    hits: int = 0
    tracks: int = 0
    left_out: int = 0

    def __str__(self) -> str:
        counts = {"event": self.events, "hit": self.hits, "track": self.tracks}
        told = ", ".join(number_of(n, noun) for noun, n in counts.items())
        left = f"; left out: {number_of(self.left_out, 'event')} without tracks"
        return f"{told}{left if self.left_out else ''}"


def check_submission_name(out: Path) -> Path:
    """Returns `out`, checked as a submission's file. InputError if it is a folder, or a name by
    which the file would be read as one event's tracks.
    """
    if TRACKS_FILE.fullmatch(out.name):
        raise InputError(
            f"{out}: a file of this name is read as one event's tracks, not as a submission; "
            "choose another name, such as mine.parquet"
        )
    return check_output_name(out, ".parquet")


def submit_tracks(tracks: Path, events: Path, out: Path, majority: bool = False) -> Submitted:
    """Writes a submission, atomically: a row for each hit of the events with tracks, with NO_TRACK
    for a hit in no track. tracks: as in `open_tracks`. majority: also writes the particle that made
    most of each track, by the truth of `events`. Raises InputError if files are damaged, tracks are
    of an event or hits that `events` lacks, or a needed truth is missing; nothing is written.
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
    """Yields the rows of each event with tracks, ascending by number, and counts them in `made`."""
    by_place = format_of(events) == EventFormat.COLLIDERML
    for number in follow(source.events, len(source.events), "submit"):
        event = read_event(events, names[number], with_truth=majority)
        hit_id = event.hits["hit_id"].astype(np.int64, copy=False)
        track_id = source.read(number).of_hits(hit_id)
        claimed = None
        if majority:
            claimed = majority_particles(track_id, hit_particles(event))
            if by_place:  # the sample numbers particles from 0; -1 is none
                claimed = stored_particle_ids(claimed).astype(np.int64)
        made.events += 1
        made.hits += len(hit_id)
        made.tracks += len(np.unique(track_id[track_id != NO_TRACK]))
        yield number, hit_id, track_id, claimed
