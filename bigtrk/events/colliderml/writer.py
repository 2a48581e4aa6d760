"""Simulated events as a ColliderML sample: files of several events, with a row group for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigtrk.console import follow
from bigtrk.disk.files import atomic_path
from bigtrk.errors import InputError, reason
from bigtrk.events.colliderml.index import find_rows
from bigtrk.events.colliderml.layout import EVENT_ID, MEASURED_HITS, find_sample
from bigtrk.events.colliderml.tables import HIT_TYPES, PARTICLE_TYPES, hit_lists, particle_lists
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import DetectorLayers

EVENTS_PER_FILE = 10  # what a stopped simulation makes again at most


class SampleWriter:
    """Writes the events that `make` simulates in a detector to `folder`/tracker_hits and, those
    with truth, `folder`/particles.
    """

    def __init__(self, folder: Path, layers: DetectorLayers, make: Callable[[int], Event]) -> None:
        self._folder = folder
        self._layers = layers
        self._make = make

    def write(self, events: Sequence[int]) -> None:
        """Writes those of the numbered `events` that are not there yet.

        Raises:
            InputError: a number of an event or of its detector does not fit the format.
        """
        sample = find_sample(self._folder)
        there = find_rows(sample.hits, MEASURED_HITS) if sample else {}
        missing = [event for event in events if event not in there]
        self._remove_unfinished(missing)
        made = follow(map(self._make, missing), len(missing), "simulate")
        for start in range(0, len(missing), EVENTS_PER_FILE):
            numbers = missing[start : start + EVENTS_PER_FILE]
            self._write_file(numbers, islice(made, len(numbers)))
        next(made, None)  # it says that all are done when it is asked for one more

    def _remove_unfinished(self, missing: Sequence[int]) -> None:
        """Removes particles of `missing` events: what a writer leaves that is killed before it
        places the hits. Other writers' are not touched.
        """
        for path in (self._folder / "particles").glob("train-*-*.parquet"):
            first, last = map(int, path.stem.split("-")[1:])
            with_hits = (self._folder / "tracker_hits" / path.name).exists()
            if not with_hits and any(first <= event <= last for event in missing):
                path.unlink()

    def _write_file(self, numbers: Sequence[int], events: Iterable[Event]) -> None:
        name = f"train-{numbers[0]:09d}-{numbers[-1]:09d}.parquet"
        with ExitStack() as open_tables:
            # Hits are placed last, by which an event is found, and is then whole.
            tables: dict[str, pq.ParquetWriter] = {}
            for number, event in zip(numbers, events, strict=True):
                for table, lists in self._lists(event).items():
                    types = {name: kind for name, kind in TYPES[table].items() if name in lists}
                    if table not in tables:
                        path = self._folder / table / name
                        tables[table] = open_tables.enter_context(_table(path, types))
                    tables[table].write_table(_row(number, lists, types))

    def _lists(self, event: Event) -> dict[str, Columns]:
        lists = {"tracker_hits": hit_lists(event, self._layers)}
        if event.particles is not None:
            lists["particles"] = particle_lists(event.particles)
        return lists


TYPES = {"tracker_hits": HIT_TYPES, "particles": PARTICLE_TYPES}


@contextmanager
def _table(path: Path, types: dict[str, pa.DataType]) -> Iterator[pq.ParquetWriter]:
    """Opens a table to write rows to; it is placed at `path` when all are written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = [pa.field(EVENT_ID, pa.uint32())]
    fields += [pa.field(name, pa.list_(kind)) for name, kind in types.items()]
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, pa.schema(fields)) as writer:
        yield writer


def _row(number: int, lists: Columns, types: dict[str, pa.DataType]) -> pa.Table:
    """Makes the row of one event: its number, and a list of each column."""
    try:
        row = {EVENT_ID: pa.array([number], pa.uint32())}
        for name, kind in types.items():
            values = pa.array(lists[name], kind)
            row[name] = pa.ListArray.from_arrays(np.array([0, len(values)], np.int32), values)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InputError(
            f"event {number}: does not fit ColliderML's columns ({reason(error)}); give smaller "
            "numbers, or leave out --format"
        ) from None
    return pa.table(row)
