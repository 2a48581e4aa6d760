"""Files of events and of tracks: valid ones, and a reader of each."""

import io
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bigtrk.events.colliderml_writer import write_sample
from bigtrk.events.event import Event
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from bigtrk.tracks.files import open_tracks, write_tracks
from tests.hostile.reader import EVENT, Reader, of_files

TABLES = ("hits", "cells", "particles", "truth")
SAMPLE_FILE = "train-000000001-000000001.parquet"


@cache
def an_event() -> Event:
    return simulate_event(4, seed=1, event_id=1)


@cache
def tables() -> dict[str, bytes]:
    """The event's files by name."""
    with TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in write_event(an_event(), Path(folder))}


@cache
def plain_tables() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        paths = write_event(an_event(), Path(folder), compress=False)
        return {path.name: path.read_bytes() for path in paths}


def a_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in plain_tables().items():
            archive.writestr(name, content)
    return packed.getvalue()


def event_seeds() -> list[bytes]:
    files = [*plain_tables().values(), *tables().values(), a_zip()]
    return [bytes([kind]) + content for kind, content in enumerate(files)]


def read_events(folder: Path, content: bytes) -> Event:
    """First byte: 0 to 3 and 4 to 7 spoil one table, plain and packed; others a zip archive."""
    kind, content = content[:1], content[1:]
    kinds = [*plain_tables(), *tables()]
    if not kind or kind[0] >= len(kinds):
        (folder / "events.zip").write_bytes(content)
        return read_event(folder / "events.zip")
    packed = kind[0] >= len(TABLES)
    events = folder / "events"
    events.mkdir(exist_ok=True)
    for path in events.iterdir():
        path.unlink()
    for name, good in (tables() if packed else plain_tables()).items():
        (events / name).write_bytes(good)
    (events / kinds[kind[0]]).write_bytes(content)
    return read_event(events)


@cache
def sample_files() -> dict[str, bytes]:
    """A file of hits and one of particles."""
    with TemporaryDirectory() as folder:
        write_sample(Path(folder), [1], TRACKML_LAYERS, lambda _: an_event())
        names = [f"{table}/{SAMPLE_FILE}" for table in ("tracker_hits", "particles")]
        return {name: (Path(folder) / name).read_bytes() for name in names}


@cache
def tracks_file() -> bytes:
    hit_id = np.arange(30)
    with TemporaryDirectory() as folder:
        return write_tracks(Path(folder), EVENT, hit_id, hit_id // 4).read_bytes()


def track_seeds() -> list[bytes]:
    return [b"\0" + tracks_file(), b"\1event_id,hit_id,track_id\n1,1,0\n1,2,0\n2,1,7\n"]


def read_track_file(folder: Path, content: bytes) -> object:
    """First byte: 0 a parquet file of an event, others a submission."""
    path = folder / (f"{EVENT}-tracks.parquet" if content[:1] == b"\0" else "submission.csv")
    path.write_bytes(content[1:])
    found = open_tracks(path)
    return [found.read(number) for number in found.events]


EVENT_READERS = {
    "event": Reader(event_seeds, read_events),
    "sample": of_files(sample_files, read_event),
    "tracks": Reader(track_seeds, read_track_file),
}
