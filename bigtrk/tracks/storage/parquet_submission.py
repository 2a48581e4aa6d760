"""The tracks of many events in one parquet file, a row per hit, as ColliderML's task takes them.

Shapes: M rows of the file, N hits of an event.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.disk.files import write_atomically
from bigtrk.disk.parquet import IntegerGroups
from bigtrk.tracks.overlaps import Ids
from bigtrk.tracks.storage.hit_tracks import HitTracks

IDS = ("event_id", "hit_id", "track_id")
CLAIMED = "majority_particle_id"


@dataclass(frozen=True)
class SubmittedEvent:
    """One event's rows: hit_id, track_id [N] int64; claimed [N] int64: the particle of each hit's
    track, None to name none.
    """

    number: int
    hit_id: Ids
    track_id: Ids
    claimed: Ids | None = None


def write_parquet_submission(path: Path, events: Iterable[SubmittedEvent], claimed: bool) -> None:
    """Writes the rows of events in their order, atomically and one event at a time, each a row
    group of its own. claimed: with the particles of tracks, which each event then has.

    Raises:
        InputError: as of what `events` reads; nothing is written.
    """
    schema = pa.schema([(name, pa.int64()) for name in ((*IDS, CLAIMED) if claimed else IDS)])

    def write(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, schema) as rows:
            for event in events:
                number = np.full(len(event.hit_id), event.number)
                columns = [number, event.hit_id, event.track_id]
                each = [*columns, event.claimed] if claimed else columns
                rows.write_table(pa.table(each, schema=schema))

    write_atomically(path, write)


class ParquetSubmission:
    """A submission on disk, read event by event.

    events: number of each event -> where its rows begin, for messages; ascending.

    Raises:
        InputError: the file is damaged, or lacks a column.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = IntegerGroups(path, IDS, optional=(CLAIMED,), or_none=("track_id", CLAIMED))
        self._groups: dict[int, list[int]] = {}
        self._last: tuple[int, dict[str, Ids]] = (-1, {})
        first_row: dict[int, int] = {}
        for group, begin in enumerate(self._rows.first_row[:-1].tolist()):
            found = self._rows.read(group, ("event_id",))["event_id"]
            numbers, first = np.unique(found, return_index=True)
            for number, row in zip(numbers.tolist(), first.tolist(), strict=True):
                self._groups.setdefault(number, []).append(group)
                first_row.setdefault(number, begin + row + 1)
        self.events = {number: f"{path}, row {first_row[number]}" for number in sorted(first_row)}

    def read(self, number: int) -> HitTracks:
        """Reads the rows of an event of `events`.

        Raises:
            InputError: the file is damaged, or its rows are as HitTracks.checked refuses.
        """
        parts = [self._of_group(group, number) for group in self._groups[number]]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return HitTracks(
            joined["hit_id"],
            joined["track_id"],
            str(self._path),
            joined["row"],
            joined.get(CLAIMED),
        ).checked()

    def _of_group(self, group: int, number: int) -> dict[str, Ids]:
        """Returns the columns of an event's rows in a group, and `row`, which counts from 1."""
        # Events follow each other in most files: the last group holds the next event's rows, too.
        if self._last[0] != group:
            self._last = (group, self._rows.read(group))
        columns = self._last[1]
        chosen = np.flatnonzero(columns["event_id"] == number)
        row = chosen + self._rows.first_row[group] + 1
        return {name: column[chosen] for name, column in columns.items()} | {"row": row}
