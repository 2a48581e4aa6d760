"""Tracks on disk: a parquet file of each event, or one submission of many events.

Shapes: M rows of a file, N hits of an event.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from bigtrk.disk.files import check_file, check_output_name, write_atomically
from bigtrk.disk.parquet import read_integers
from bigtrk.errors import InputError
from bigtrk.events.archives import open_source
from bigtrk.events.event import TableSpec, event_name
from bigtrk.events.trackml import HEADER_LINES, parse_table
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.overlaps import Ids
from bigtrk.tracks.storage.hit_tracks import HitTracks
from bigtrk.tracks.storage.parquet_submission import ParquetSubmission

EVENT_NAME = re.compile(r"event(\d{1,18})")  # so many digits fit int64
TRACKS_FILE = re.compile(r"(event\d{1,18})-tracks\.parquet")
SUBMISSION = TableSpec(stems=("submission",), ids=("event_id", "hit_id", "track_id"))
FIRST_LINE = HEADER_LINES + 1


def event_number(name: str) -> int:
    """Returns the number in an event's name, which is its event_id in a submission.

    Raises:
        InputError: the name has none, such as that of a graph from other files than TrackML's.
    """
    match = EVENT_NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"{name}: this name of an event has no number of at most 18 digits, by which files of "
            "tracks tell events; rename its files, such as to event000001000"
        )
    return int(match[1])


def tracks_path(folder: Path, event: str) -> Path:
    """Returns the path of an event's file of tracks."""
    return folder / f"{event}-tracks.parquet"


def write_tracks(folder: Path, event: str, hit_id: Ids, track_id: Ids) -> Path:
    """Writes `folder`/EVENT-tracks.parquet, atomically, and returns its path.

    hit_id [N] int64, track_id [N] int64: NO_TRACK for a hit in no track.
    """
    path = tracks_path(folder, event)
    table = pa.table({"hit_id": hit_id, "track_id": track_id})
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))
    return path


def write_submission(path: Path, events: Iterable[tuple[str, Ids, Ids]]) -> None:
    """Writes a TrackML submission, atomically: for each event its name, hit_id [N], track_id [N].
    Where `path` ends with .gz it is packed.

    The challenge wants every hit in a track, so that a hit in NO_TRACK gets a track of its own,
    numbered behind the event's others.

    Raises:
        InputError: an event's name has no number; nothing is written.
    """
    columns = pa.schema([(name, pa.int64()) for name in SUBMISSION.ids])
    options = pa_csv.WriteOptions(quoting_style="none", quoting_header="none")

    def write(temporary: Path) -> None:
        # The temporary name tells Arrow of no packing.
        packing = "gzip" if path.suffix == ".gz" else None
        with (
            pa.output_stream(temporary, compression=packing) as file,
            pa_csv.CSVWriter(file, columns, write_options=options) as rows,
        ):
            for event, hit_id, track_id in events:
                number = np.full(len(hit_id), event_number(event))
                each = [number, hit_id, _with_tracks_of_one(track_id)]
                rows.write_table(pa.table(each, schema=columns))

    write_atomically(path, write)


def copy_as_trackml(tracks: Path, path: Path) -> None:
    """Writes the tracks of `tracks` (see `open_tracks`) as one TrackML submission, atomically.

    Raises:
        InputError: there are none, or they are damaged, or `path` ends with neither .csv nor
            .csv.gz; nothing is written.
    """
    check_output_name(path, ".csv", ".csv.gz")
    source = open_tracks(tracks)
    found = ((number, source.read(number)) for number in source.events)
    write_submission(
        path, ((event_name(number), one.hit_id, one.track_id) for number, one in found)
    )


def _with_tracks_of_one(track_id: Ids) -> Ids:
    """Gives each hit in no track a track of its own: [N] -> [N]."""
    alone = track_id == NO_TRACK
    last = track_id.max(initial=NO_TRACK)
    return np.where(alone, last + np.cumsum(alone), track_id)


@dataclass(frozen=True)
class TrackSource:
    """The tracks of several events on disk.

    events: number of each event -> where its tracks begin, for messages; ascending. read: returns
    the tracks of the event of a number, or raises InputError naming file, row and remedy.
    """

    events: dict[int, str]
    read: Callable[[int], HitTracks]


def open_tracks(path: Path) -> TrackSource:
    """Finds the tracks of a folder of event<id>-tracks.parquet, of one such file (both with
    columns hit_id and track_id, event_id is optional), or of a submission with event_id, hit_id and
    track_id: a parquet file of another name, or TrackML's CSV, which gzip may have packed. A CSV is
    read at once, all else event by event.

    Raises:
        InputError: there are none, two files are of one event, or the submission is damaged.
    """
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder; name a folder of event<id>-tracks.parquet, one such "
            "file, or a submission (parquet or TrackML's CSV)"
        )
    if path.is_dir():
        return _open_files(path, sorted(path.iterdir()))
    check_file(path)
    if path.suffix != ".parquet":
        return _open_csv(path)
    if TRACKS_FILE.fullmatch(path.name):
        return _open_files(path, [path])
    submission = ParquetSubmission(path)
    return TrackSource(submission.events, submission.read)


def _open_files(path: Path, found: list[Path]) -> TrackSource:
    """Takes those of the files that are found at `path` whose names are of tracks."""
    files: dict[int, Path] = {}
    for file in found:
        if match := TRACKS_FILE.fullmatch(file.name):
            other = files.setdefault(event_number(match[1]), file)
            if other != file:
                raise InputError(f"{file}: is of the same event as {other}; remove one of them")
    if not files:
        raise InputError(
            f"{path}: holds no tracks of an event, as event000001000-tracks.parquet does; rename "
            "the files so, or name their folder or a submission CSV"
        )
    events = {number: str(files[number]) for number in sorted(files)}
    return TrackSource(events, lambda number: _read_parquet(files[number], number))


def _read_parquet(path: Path, number: int) -> HitTracks:
    columns = read_integers(path, ("hit_id", "track_id"), optional=("event_id",))
    row = np.arange(len(columns["hit_id"])) + 1
    if "event_id" in columns and len(others := np.flatnonzero(columns["event_id"] != number)):
        first = others[0]
        raise InputError(
            f"{path}, row {row[first]}: event_id is {columns['event_id'][first]}, but the file's "
            f"name says {number}; give each event a file of its own, named by its number"
        )
    return HitTracks(columns["hit_id"], columns["track_id"], str(path), row).checked()


def _open_csv(path: Path) -> TrackSource:
    columns = parse_table(open_source(path.parent).read(path.name), SUBMISSION, str(path))
    event_id, hit_id, track_id = (columns[name].astype(np.int64) for name in SUBMISSION.ids)
    by_event = np.argsort(event_id, kind="stable")
    numbers, first = np.unique(event_id[by_event], return_index=True)
    rows = dict(zip(numbers.tolist(), np.split(by_event, first[1:]), strict=True))

    def read(number: int) -> HitTracks:
        chosen = rows[number]
        line = chosen + FIRST_LINE
        return HitTracks(hit_id[chosen], track_id[chosen], str(path), line).checked()

    events = {number: f"{path}, row {rows[number][0] + FIRST_LINE}" for number in rows}
    return TrackSource(events, read)
