"""Tracks as lists of hits, as ACTS and ColliderML write them, turned into a track for each hit.

Tracks may share hits, and a hit has one track here: that of the most hits.
"""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.console import warn_once
from bigtrk.disk.files import check_file
from bigtrk.errors import InputError, reason
from bigtrk.events.archives import open_source

Ids = NDArray[np.int64]
ACTS_FILE = re.compile(r"(event\d{1,18})-([A-Za-z_]*tracks[a-z_]*)\.csv(\.gz)?")
HITS_COLUMN = "Measurements_ID"  # of ACTS's CsvTrackWriter: "[11298,19596,]"
LISTS_COLUMN = "hit_ids"  # of ColliderML's tracks, a row per event
_LIST = re.compile(r"\[[\d,\s]*\]")


def longest_track(hits: Sequence[Sequence[int]], rank: Ids | None = None) -> tuple[Ids, Ids, int]:
    """Returns the hits in tracks, the row of each hit's track, and how many hits are shared.

    rank: breaks ties among tracks of one length, the smallest first.
    """
    lengths = np.array([len(track) for track in hits], np.int64)
    ties = np.arange(len(hits)) if rank is None else rank
    order = np.lexsort((ties, -lengths))  # the first that lists a hit has it
    listed = [np.asarray(hits[row], np.int64) for row in order]
    hit = np.concatenate([np.empty(0, np.int64), *listed])
    found, first = np.unique(hit, return_index=True)
    return found, np.repeat(order, lengths[order])[first], len(hit) - len(found)


def say_shared(shared: int, where: str) -> None:
    """Says once how many hits are in several tracks."""
    if shared:
        warn_once(
            "hits that tracks share",
            f"{where}: tracks list {shared:,} hits that a longer track has, too: each hit counts "
            f"for the longest",
        )


def read_acts_tracks(path: Path) -> tuple[Ids, Ids, Ids]:
    """Reads a file of ACTS's CsvTrackWriter: hits, the track of each, and its row [M].

    Raises:
        InputError: it is damaged, or lacks a column.
    """
    text = open_source(path.parent).read(path.name).decode("utf-8", errors="replace")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    names = rows.fieldnames or []
    if missing := [name for name in ("track_id", HITS_COLUMN) if name not in names]:
        raise InputError(
            f"{path}, row 1: missing column {', '.join(missing)}; give a file of ACTS's "
            f"CsvTrackWriter"
        )
    track_id, hits = [], []
    for row in rows:
        listed = row[HITS_COLUMN] or ""
        number = row["track_id"] or ""
        if not _LIST.fullmatch(listed) or not number.isdecimal():
            raise InputError(
                f"{path}, row {rows.line_num}: track {number!r} has hits {listed[:40]!r}, not a "
                f"list such as [11298,19596,]; write the file again"
            )
        track_id.append(int(number))
        hits.append([int(one) for one in listed[1:-1].split(",") if one.strip()])
    hit, row_of, shared = longest_track(hits)
    say_shared(shared, str(path))
    return hit, np.array(track_id, np.int64)[row_of], row_of + 2


class ColliderMLTracks:
    """ColliderML's table of tracks: a row per event, `track_id` and `hit_ids` a list per track.

    events: number of each event -> its row.

    Raises:
        InputError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        check_file(path)
        try:
            self._table = pq.read_table(path, columns=["event_id", "track_id", LISTS_COLUMN])
        except (pa.ArrowException, OSError, KeyError) as error:
            raise InputError(f"{path}: damaged file ({reason(error)}); fetch it again") from None
        numbers = self._table["event_id"].to_pylist()
        self.events = {int(number): row for row, number in enumerate(numbers)}
        if len(self.events) < len(numbers):
            raise InputError(f"{path}: lists an event twice; keep one row of each")

    def read(self, number: int) -> tuple[Ids, Ids, Ids]:
        """Returns the hits in tracks of an event, the track of each, and the row [M]."""
        row = self.events[number]
        tracks = self._table["track_id"][row].as_py()
        hits = self._table[LISTS_COLUMN][row].as_py()
        if tracks is None or hits is None or len(tracks) != len(hits):
            raise InputError(
                f"{self._path}, row {row + 1}: has not one list of hits for each track; fetch it "
                f"again"
            )
        hit, row_of, shared = longest_track(hits)
        say_shared(shared, str(self._path))
        return hit, np.array(tracks, np.int64)[row_of], np.full(len(hit), row + 1)


def is_colliderml(path: Path) -> bool:
    """True where a Parquet file has lists of hits."""
    try:
        return LISTS_COLUMN in pq.read_schema(path).names
    except (pa.ArrowException, OSError):
        return False
