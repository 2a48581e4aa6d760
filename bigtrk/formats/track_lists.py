"""Tracks as the lists of their hits, a row per track: what pandas, awkward and polars read best."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.disk.files import check_output_name, write_atomically
from bigtrk.tracks.files import HitTracks, open_tracks

SCHEMA = pa.schema(
    [("event_id", pa.int64()), ("track_id", pa.int64()), ("hit_ids", pa.list_(pa.int64()))]
)


def write_track_lists(tracks: Path, out: Path) -> None:
    """Writes a parquet file of event_id, track_id and hit_ids, atomically and event by event: hits
    in the order in which `tracks` lists them; those in no track are left out.

    tracks: as of `open_tracks`.

    Raises:
        InputError: there are none, or they are damaged, or `out` does not end with .parquet;
            nothing is written.
    """
    check_output_name(out, ".parquet")
    source = open_tracks(tracks)

    def write(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, SCHEMA) as rows:
            for number in source.events:
                rows.write_table(_lists(number, source.read(number).in_tracks()))

    write_atomically(out, write)


def _lists(number: int, tracks: HitTracks) -> pa.Table:
    """Returns the rows of one event."""
    by_track = np.argsort(tracks.track_id, kind="stable")
    track_id, first = np.unique(tracks.track_id[by_track], return_index=True)
    offsets = np.append(first, len(by_track)).astype(np.int32)
    hit_ids = pa.ListArray.from_arrays(offsets, tracks.hit_id[by_track])
    return pa.table([np.full(len(track_id), number), track_id, hit_ids], schema=SCHEMA)
