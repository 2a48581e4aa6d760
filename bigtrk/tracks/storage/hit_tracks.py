"""The tracks of one event as a file lists them.

Shapes: M rows of a file, N hits of an event.
"""

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from bigtrk.errors import InputError
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.overlaps import Ids


@dataclass(frozen=True)
class HitTracks:
    """The listed hits of one event and their tracks: hit_id, track_id [M] int64 (NO_TRACK: in no
    track). file, row [M]: where each is listed, for messages. claimed [M] int64: the particle that
    made most of the hit's track, as the file says; None where it does not.
    """

    hit_id: Ids
    track_id: Ids
    file: str
    row: Ids
    claimed: Ids | None = None

    def checked(self) -> "HitTracks":
        """Returns itself.

        Raises:
            InputError: a hit is listed twice, or a track id is below NO_TRACK.
        """
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
        """Returns the track of each hit of the event, NO_TRACK where none is listed: [N] -> [N].

        Raises:
            InputError: a listed hit is not among the event's.
        """
        if len(unknown := np.flatnonzero(~np.isin(self.hit_id, hit_id))):
            row = int(unknown[0])
            self._fail(
                row,
                f"hit {self.hit_id[row]} is not in the event",
                f"remove its row ({len(unknown)} such rows in all), or give the event of these "
                "tracks",
            )
        track_id = np.full(len(hit_id), NO_TRACK, np.int64)
        order = np.argsort(hit_id)
        track_id[order[np.searchsorted(hit_id[order], self.hit_id)]] = self.track_id
        return track_id

    def without(self, track: int) -> "HitTracks":
        """Returns the same with the hits of `track` in no track."""
        track_id = np.where(self.track_id == track, NO_TRACK, self.track_id)
        return replace(self, track_id=track_id)

    def in_tracks(self) -> "HitTracks":
        """Returns the hits that are in a track."""
        kept = self.track_id != NO_TRACK
        claimed = None if self.claimed is None else self.claimed[kept]
        return HitTracks(self.hit_id[kept], self.track_id[kept], self.file, self.row[kept], claimed)

    def _fail(self, row: int, problem: str, remedy: str) -> NoReturn:
        raise InputError(f"{self.file}, row {self.row[row]}: {problem}; {remedy}")


def nothing_listed(file: str) -> HitTracks:
    """Returns what a file that leaves an event out says of it."""
    none = np.empty(0, np.int64)
    return HitTracks(none, none, file, none)
