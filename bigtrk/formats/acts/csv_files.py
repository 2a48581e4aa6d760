"""Tracks and scored graphs as the CSV files of ACTS's examples, one of each event.

The columns are those of ACTS's CsvProtoTrackWriter and CsvGnnGraphReader (2026-08). Hits keep their
ids; ACTS means positions, from 0, among an event's measurements or space points.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event, event_name
from bigtrk.events.reader import read_event
from bigtrk.events.writer import write_table
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.files import event_number, events_by_number, open_tracks
from bigtrk.tracks.matching import Ids


def write_prototracks(tracks: Path, events: Path, out: Path) -> list[Path]:
    """Writes `out`/event<id>-prototracks.csv of each event with tracks, each atomically: trackId
    (from 0 on), measurementId (the hit's id) and x, y, z (mm). Returns the paths.

    tracks: as of `open_tracks`. events: the folder or zip archive that says where hits are.

    Raises:
        InputError: files are damaged, or tracks are of an event or of hits that `events` lacks;
            those written before stay.
    """
    source = open_tracks(tracks)
    names = events_by_number(source, events)
    written = []
    for number in source.events:
        event = read_event(events, names[number], with_truth=False)
        track_id = source.read(number).of_hits(event.hits["hit_id"].astype(np.int64, copy=False))
        path = _event_file(out, number, "prototracks")
        written.append(write_table(_prototracks(event, track_id), path, compress=False))
    return written


def _prototracks(event: Event, track_id: Ids) -> Columns:
    """Returns the columns of the hits in tracks, by track."""
    hits = np.argsort(track_id, kind="stable")[(track_id == NO_TRACK).sum() :]
    _, number = np.unique(track_id[hits], return_inverse=True)
    places = {axis: event.hits[axis][hits] for axis in "xyz"}
    return {"trackId": number, "measurementId": event.hits["hit_id"][hits], **places}


def write_gnn_graphs(graphs: Path, out: Path, score: Callable[[EventGraph], Tensor]) -> list[Path]:
    """Writes `out`/event<id>-gnn-graph.csv of each graph, each atomically: the ids of the hits that
    an edge joins (edge0, edge1) and its score, in [0, 1] (weight). Returns the paths.

    Raises:
        InputError: the folder or a graph cannot be read, a graph knows no ids of its hits, or its
            name has no number; those written before stay.
    """
    folder = GraphFolder(graphs)
    written = []
    for name in folder.events:
        graph = folder.read(name)
        if graph.hit_id is None:
            raise InputError(
                f"{name} in {graphs}: knows no ids of its hits, by which ACTS tells them; build it "
                "from events"
            )
        source, destination = graph.hit_id.numpy()[graph.edge_index.numpy()]
        columns: Columns = {"edge0": source, "edge1": destination, "weight": score(graph).numpy()}
        path = _event_file(out, event_number(name), "gnn-graph")
        written.append(write_table(columns, path, compress=False))
    return written


def _event_file(folder: Path, number: int, stem: str) -> Path:
    return folder / f"{event_name(number)}-{stem}.csv"
