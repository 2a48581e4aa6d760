"""Tracks on disk: a Parquet file per event, one submission of many, and lists of other tools.

Tracks of ACTS and ColliderML are lists of hits, and tracks may share hits. Here a hit has one
track: the one with most hits. Shapes: M rows of a file, N hits of an event.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from bigtrk.console import warn_once
from bigtrk.disk.files import check_file, check_output_name, write_atomically
from bigtrk.disk.parquet import IntegerGroups, read_integers
from bigtrk.errors import InputError, damage_told
from bigtrk.events.archives import open_source
from bigtrk.events.event import TableSpec, event_name
from bigtrk.events.reader import find_events
from bigtrk.events.trackml import FIRST_LINE, parse_table
from bigtrk.events.truth import rows_of
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.matching import Ids


@dataclass(frozen=True)
class HitTracks:
    """The listed hits of one event and their tracks. hit_id, track_id [M] int64 (NO_TRACK: in no
    track). file, row [M]: where each hit is listed, for messages. claimed [M] int64: the particle
    that made most of the hit's track, according to the file; None if the file names none.
    """

    hit_id: Ids
    track_id: Ids
    file: str
    row: Ids
    claimed: Ids | None = None

    def checked(self) -> "HitTracks":
        """Returns itself; InputError if a hit is listed twice or a track id is below NO_TRACK."""
        _, first = np.unique(self.hit_id, return_index=True)
        if len(first) < len(self.hit_id):
            row = int(np.setdiff1d(np.arange(len(self.hit_id)), first)[0])
            self._fail(row, f"hit {self.hit_id[row]} is listed again", "keep one row of each hit")
        if len(negative := np.flatnonzero(self.track_id < NO_TRACK)):
            row = int(negative[0])
            self._fail(
                row,
                f"track id {self.track_id[row]} is below {NO_TRACK}",
                f"number tracks from 0; {NO_TRACK} is for a hit in no track",
            )
        return self

    def of_hits(self, hit_id: Ids) -> Ids:
        """Returns the track of each given hit, NO_TRACK for hits that are not listed: [N] -> [N].
        InputError if a listed hit is not among the given ones.
        """
        of_event = rows_of(self.hit_id, hit_id)
        if len(unknown := np.flatnonzero(of_event < 0)):
            row = int(unknown[0])
            self._fail(
                row,
                f"hit {self.hit_id[row]} is not in the event",
                f"remove such hits ({len(unknown)} in all), or give the event of these tracks",
            )
        track_id = np.full(len(hit_id), NO_TRACK, np.int64)
        track_id[of_event] = self.track_id
        return track_id

    def without(self, track: int) -> "HitTracks":
        """Returns a copy in which the hits of `track` are in no track."""
        track_id = np.where(self.track_id == track, NO_TRACK, self.track_id)
        return replace(self, track_id=track_id)

    def in_tracks(self) -> "HitTracks":
        """Returns a copy with only the hits that are in a track."""
        kept = self.track_id != NO_TRACK
        claimed = None if self.claimed is None else self.claimed[kept]
        return HitTracks(self.hit_id[kept], self.track_id[kept], self.file, self.row[kept], claimed)

    def _fail(self, row: int, problem: str, remedy: str) -> NoReturn:
        raise InputError(f"{self.file}, row {self.row[row]}: {problem}; {remedy}")


IDS = ("event_id", "hit_id", "track_id")
CLAIMED = "majority_particle_id"


# One event's rows: its number, hit_id, track_id [N] int64, and the particle of each hit's track [N]
# int64, None to name none.
SubmittedEvent = tuple[int, Ids, Ids, Ids | None]


def write_parquet_submission(path: Path, events: Iterable[SubmittedEvent], claimed: bool) -> None:
    """Writes a Parquet submission, atomically, event by event; each event is a row group. claimed:
    also writes the particle of each track, which each event must then have.
    """
    names = (*IDS, CLAIMED) if claimed else IDS
    filled = (
        [np.full(len(hit_id), number), hit_id, track_id, particles][: len(names)]
        for number, hit_id, track_id, particles in events
    )
    write_rows(path, pa.schema([(name, pa.int64()) for name in names]), filled)


def write_rows(
    path: Path, schema: pa.Schema, events: Iterable[Sequence[Any]], csv: bool = False
) -> None:
    """Writes the columns of `events`, one event at a time, to a Parquet file or, with `csv`, to a
    CSV file, which is gzipped if its name ends with .gz. Atomic.
    """
    plain = pa_csv.WriteOptions(quoting_style="none", quoting_header="none")
    make = partial(pa_csv.CSVWriter, write_options=plain) if csv else pq.ParquetWriter
    # Arrow cannot see from the temporary name that the file is gzipped.
    packing = "gzip" if csv and path.suffix == ".gz" else None

    def write(temporary: Path) -> None:
        with pa.output_stream(temporary, compression=packing) as file, make(file, schema) as rows:
            for columns in events:
                rows.write_table(pa.table(columns, schema=schema))

    write_atomically(path, write)


EVENT_NAME = re.compile(r"event(\d{1,18})")  # 18 digits fit int64
TRACKS_FILE = re.compile(r"(event\d{1,18})-tracks\.parquet")
ACTS_FILE = re.compile(r"(event\d{1,18})-([A-Za-z_]*tracks[a-z_]*)\.csv(\.gz)?")
SUBMISSION = TableSpec(stems=("submission",), ids=IDS)
HITS_COLUMN = "Measurements_ID"  # of ACTS's CsvTrackWriter: "[11298,19596,]"
LISTS_COLUMN = "hit_ids"  # of ColliderML's tracks, a row per event
_NUMBER = re.compile(r"\d{1,18}")
_LIST = re.compile(r"\[(\s*\d{1,18}\s*,)*(\s*\d{1,18}\s*)?\]")


def event_number(name: str) -> int:
    """Returns the number in an event's name, its event_id in a submission. InputError if it has
    none, as a graph from files of other formats than TrackML's.
    """
    match = EVENT_NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f"{name}: must be named 'event' and a number of at most 18 digits, such as "
            "event000001000; rename its files, and build its graph again if there is one"
        )
    return int(match[1])


def tracks_path(folder: Path, event: str) -> Path:
    """Returns the path of an event's file of tracks."""
    return folder / f"{event}-tracks.parquet"


def write_tracks(folder: Path, event: str, hit_id: Ids, track_id: Ids) -> Path:
    """Writes an event's tracks to `folder`/EVENT-tracks.parquet, atomically; returns the path.

    hit_id [N] int64, track_id [N] int64: NO_TRACK for a hit in no track.
    """
    path = tracks_path(folder, event)
    table = pa.table({"hit_id": hit_id, "track_id": track_id})
    write_atomically(path, lambda temporary: pq.write_table(table, temporary))
    return path


def write_submission(path: Path, events: Iterable[tuple[str, Ids, Ids]]) -> None:
    """Writes a TrackML submission, atomically; events: name, hit_id [N], track_id [N] of each. If
    `path` ends with .gz, the file is gzipped.

    The challenge wants every hit in a track. So a hit in NO_TRACK gets a track of its own, numbered
    after the event's others. InputError if an event's name has no number.
    """

    def filled() -> Iterator[Sequence[Ids]]:
        for event, hit_id, track_id in events:
            number, alone = np.full(len(hit_id), event_number(event)), track_id == NO_TRACK
            own = track_id.max(initial=NO_TRACK) + np.cumsum(alone)
            yield number, hit_id, np.where(alone, own, track_id)

    write_rows(path, pa.schema([(name, pa.int64()) for name in IDS]), filled(), csv=True)


def copy_as_trackml(tracks: Path, path: Path) -> None:
    """Writes the tracks in `tracks` (see `open_tracks`) as one TrackML submission, atomically.
    Raises InputError if there are none, or they are damaged, or `path` ends with neither .csv nor
    .csv.gz; nothing is written.
    """
    check_output_name(path, ".csv", ".csv.gz")
    source = open_tracks(tracks)
    found = ((number, source.read(number)) for number in source.events)
    write_submission(
        path, ((event_name(number), one.hit_id, one.track_id) for number, one in found)
    )


@dataclass(frozen=True)
class TrackSource:
    """The tracks of several events on disk.

    events: maps each event's number to where its tracks begin, for messages; ascending. read:
    returns the tracks of event `number`, or raises InputError naming file, row and remedy.
    """

    events: dict[int, str]
    read: Callable[[int], HitTracks]


def open_tracks(path: Path) -> TrackSource:
    """Opens the tracks in a folder of event<id>-tracks.parquet or of ACTS's event<id>-tracks*.csv,
    in one such file, in a submission with event_id, hit_id and track_id (a parquet file of another
    name, or TrackML's CSV, possibly gzipped), or in ColliderML's table of tracks.

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
    if ACTS_FILE.fullmatch(path.name) or TRACKS_FILE.fullmatch(path.name):
        return _open_files(path, [path])
    if path.suffix != ".parquet":
        return _open_csv(path)
    with suppress(pa.ArrowException, OSError):  # of damage, which is reported below
        if LISTS_COLUMN in pq.read_schema(path).names:
            return _open_colliderml(path)
    return _open_parquet(path)


def _open_files(path: Path, found: list[Path]) -> TrackSource:
    """Opens those of the files `found` whose names mark them as tracks. path: for messages."""
    files: dict[int, Path] = {}
    for file in found:
        if match := TRACKS_FILE.fullmatch(file.name) or ACTS_FILE.fullmatch(file.name):
            other = files.setdefault(event_number(match[1]), file)
            if other != file:
                raise InputError(
                    f"{file}: has tracks of the same event as {other}; name one of the two, or put "
                    "them in different folders"
                )
    if not files:
        raise InputError(
            f"{path}: holds no tracks (files such as event000001000-tracks.parquet); name a folder "
            "of such files, or a submission, as the first argument"
        )

    def read(number: int) -> HitTracks:
        file = files[number]
        is_acts = ACTS_FILE.fullmatch(file.name)
        return _read_acts(file) if is_acts else _read_parquet(file, number)

    return TrackSource({number: str(files[number]) for number in sorted(files)}, read)


def longest_track(hits: Sequence[Sequence[int]], rank: Ids | None = None) -> tuple[Ids, Ids, int]:
    """Returns the hits in tracks, the index of each hit's longest track, and the repeated listings.

    rank: breaks ties between tracks of equal length; the smallest rank wins.
    """
    lengths = np.array([len(track) for track in hits], np.int64)
    ties = np.arange(len(hits)) if rank is None else rank
    order = np.lexsort((ties, -lengths))  # a hit goes to the first track that lists it
    listed = [np.asarray(hits[row], np.int64) for row in order]
    hit = np.concatenate([np.empty(0, np.int64), *listed])
    found, first = np.unique(hit, return_index=True)
    return found, np.repeat(order, lengths[order])[first], len(hit) - len(found)


def _unlisted(
    hits: Sequence[Sequence[int]], track_id: Sequence[int], row: Ids, path: Path
) -> HitTracks:
    """Converts tracks' lists of hits to tracks of hits. row: where the file lists each track."""
    hit, place, shared = longest_track(hits)
    if shared:
        warn_once(
            "hits that tracks share",
            f"{path}: tracks share hits ({shared:,} times); such a hit counts only for its longest "
            f"track",
        )
    return HitTracks(hit, np.array(track_id, np.int64)[place], str(path), row[place]).checked()


def _read_acts(path: Path) -> HitTracks:
    """Reads the tracks in a file of ACTS's CsvTrackWriter."""
    text = open_source(path.parent).read(path.name).decode("utf-8", errors="replace")
    track_id, hits = [], []
    with damage_told(f"{path}: damaged file", "write it again"):
        rows = csv.DictReader(io.StringIO(text, newline=""))
        names = rows.fieldnames or []
        if missing := [name for name in ("track_id", HITS_COLUMN) if name not in names]:
            raise InputError(
                f"{path}, row 1: missing column {', '.join(missing)}; give a file of ACTS's "
                f"CsvTrackWriter"
            )
        for row in rows:
            listed, number = row[HITS_COLUMN] or "", row["track_id"] or ""
            if not _LIST.fullmatch(listed) or not _NUMBER.fullmatch(number):
                raise InputError(
                    f"{path}, row {rows.line_num}: track {number!r} has hits {listed[:40]!r}; a "
                    f"track is a number from 0, its hits a list such as [11298,19596]; each number "
                    f"has at most 18 digits"
                )
            track_id.append(int(number))
            hits.append([int(one) for one in listed[1:-1].split(",") if one.strip()])
    return _unlisted(hits, track_id, np.arange(len(hits)) + FIRST_LINE, path)


def _open_colliderml(path: Path) -> TrackSource:
    """Opens a table of tracks with lists of their hits: either a row per event with lists of
    tracks, as ColliderML's, or a row per track, as `bigtrk export tracks` writes it.
    """
    damage = partial(damage_told, f"{path}: damaged file", "fetch it again")
    needed = ["event_id", "track_id", LISTS_COLUMN]
    with damage():
        names = pq.read_schema(path).names
        if missing := [name for name in needed if name not in names]:
            raise InputError(
                f"{path}: missing column {', '.join(missing)}; lists of tracks need "
                f"{', '.join(needed)}: rename its columns"
            )
        table = pq.read_table(path, columns=needed)
        numbers = [int(number) for number in table["event_id"].to_pylist()]
        of_events = pa.types.is_nested(table.schema.field("track_id").type)
    rows: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        rows.setdefault(number, []).append(row)
    if of_events and len(rows) < len(numbers):
        twice = next(number for number, places in rows.items() if len(places) > 1)
        raise InputError(f"{path}: event {twice} has several rows; keep one row per event")

    def read(number: int) -> HitTracks:
        chosen = table.take(rows[number])
        row = np.array(rows[number]) + 1
        tracks, hits = (chosen[name].to_pylist() for name in ("track_id", LISTS_COLUMN))
        if of_events:
            tracks, hits = tracks[0], hits[0]
            row = np.full(len(tracks or ()), row[0])
        are_lists = isinstance(tracks, list) and isinstance(hits, list)
        if not are_lists or len(tracks) != len(hits):
            raise InputError(
                f"{path}, row {rows[number][0] + 1}: track_id and hit_ids differ in length; each "
                "track needs one list of hits, so correct the file, or fetch it again"
            )
        with damage():
            return _unlisted(hits, tracks, row, path)

    first = {number: found[0] + 1 for number, found in sorted(rows.items())}
    return TrackSource({number: f"{path}, row {row}" for number, row in first.items()}, read)


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


def _open_parquet(path: Path) -> TrackSource:
    """Opens a Parquet submission; its events are read one by one."""
    rows = IntegerGroups(path, IDS, optional=(CLAIMED,), or_none=("track_id", CLAIMED))
    groups: dict[int, list[int]] = {}
    first_row: dict[int, int] = {}
    for group, begin in enumerate(rows.first_row[:-1].tolist()):
        numbers, first = np.unique(rows.read(group, ("event_id",))["event_id"], return_index=True)
        for number, row in zip(numbers.tolist(), first.tolist(), strict=True):
            groups.setdefault(number, []).append(group)
            first_row.setdefault(number, begin + row + 1)
    # Caches the last group, which in most files also holds the next event's first rows.
    read_group = lru_cache(maxsize=1)(rows.read)

    def of_group(group: int, number: int) -> dict[str, Ids]:
        columns = read_group(group)
        chosen = np.flatnonzero(columns["event_id"] == number)
        row = chosen + rows.first_row[group] + 1  # counts from 1
        return {name: column[chosen] for name, column in columns.items()} | {"row": row}

    def read(number: int) -> HitTracks:
        parts = [of_group(group, number) for group in groups[number]]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        hit_id, track_id, row = joined["hit_id"], joined["track_id"], joined["row"]
        return HitTracks(hit_id, track_id, str(path), row, joined.get(CLAIMED)).checked()

    return TrackSource({n: f"{path}, row {first_row[n]}" for n in sorted(first_row)}, read)


def _open_csv(path: Path) -> TrackSource:
    columns = parse_table(open_source(path.parent).read(path.name), SUBMISSION, str(path))
    event_id, hit_id, track_id = (columns[name].astype(np.int64) for name in IDS)
    by_event = np.argsort(event_id, kind="stable")
    numbers, first = np.unique(event_id[by_event], return_index=True)
    rows = dict(zip(numbers.tolist(), np.split(by_event, first[1:]), strict=True))

    def read(number: int) -> HitTracks:
        chosen = rows[number]
        line = chosen + FIRST_LINE
        return HitTracks(hit_id[chosen], track_id[chosen], str(path), line).checked()

    events = {number: f"{path}, row {rows[number][0] + FIRST_LINE}" for number in rows}
    return TrackSource(events, read)


def names_by_number(names: Iterable[str], where: object = "events") -> dict[int, str]:
    """Maps events' numbers to their names, ascending. InputError if a name has no number, or two
    names have the same. where: the place of the events, for messages.
    """
    known: dict[int, str] = {}
    for name in names:
        other = known.setdefault(event_number(name), name)
        if other != name:
            raise InputError(
                f"{where}: {other} and {name} have the same number, but files of tracks "
                "name events by number alone; rename the files of one"
            )
    return dict(sorted(known.items()))


def events_by_number(source: TrackSource, events: Path) -> dict[int, str]:
    """Maps the numbers of all events in a folder or zip archive to their names, ascending.
    InputError if two have the same number, or `source` has tracks of an event that is not there.
    """
    names = names_by_number(find_events(events), events)
    for number, where in source.events.items():
        if number not in names:
            raise InputError(
                f"{where}: these are tracks of event {number}, which is not in {events}; name the "
                "folder or zip archive of this event, or remove its tracks"
            )
    return names
