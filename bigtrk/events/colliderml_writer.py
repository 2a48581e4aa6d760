"""Writes simulated events as a ColliderML sample: files of several events, a row group for each."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bigtrk.console import follow
from bigtrk.disk.files import atomic_path
from bigtrk.errors import InputError, reason
from bigtrk.events.colliderml_reader import (
    EVENT_ID,
    MEASURED_HITS,
    find_rows,
    find_sample,
    stored_particle_ids,
)
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import DetectorLayers
from bigtrk.events.simulation.tracks import PION_MASS

LIGHT = 299.792458  # mm/ns
# The values of each list. Source: the release's own types.
TYPES = {
    "tracker_hits": {
        **dict.fromkeys(("x", "y", "z", "true_x", "true_y", "true_z", "time"), pa.float32()),
        "particle_id": pa.uint64(),
        "volume_id": pa.uint8(),
        "layer_id": pa.uint16(),
        "surface_id": pa.uint32(),
        "detector": pa.uint8(),
    },
    "particles": {
        "particle_id": pa.uint64(),
        "pdg_id": pa.int64(),
        **dict.fromkeys(("mass", "energy", "charge", "vx", "vy", "vz", "time"), pa.float32()),
        **dict.fromkeys(("px", "py", "pz", "perigee_d0", "perigee_z0"), pa.float32()),
        **dict.fromkeys(("num_tracker_hits", "num_calo_hits", "vertex_primary"), pa.uint16()),
        "primary": pa.bool_(),
        "parent_id": pa.int64(),
    },
}
LAST_SYSTEM = 2  # pixels 0, short strips 1, long strips 2


def _hit_lists(event: Event, layers: DetectorLayers) -> Columns:
    """Returns the columns of an event's hits, each [N], in their order, with truth if the event has
    it. A hit's time is that of light on a straight line from the origin.
    """
    hits, codes = event.hits, detector_codes(layers)
    volume = hits["volume_id"].astype(np.int64)
    lists = {name: hits[name] for name in ("x", "y", "z", "volume_id", "layer_id")} | {
        "time": _flight(hits["x"], hits["y"], hits["z"]),
        "surface_id": hits["module_id"],
        "detector": np.array([codes[number] for number in volume.tolist()], np.int64),
    }
    if event.truth is not None:
        assert np.array_equal(event.truth["hit_id"], hits["hit_id"]), "truth is in order of hits"
        lists["particle_id"] = stored_particle_ids(event.truth["particle_id"])
        lists |= {f"true_{axis}": event.truth[f"t{axis}"] for axis in "xyz"}
    return lists


def _particle_lists(particles: Columns) -> Columns:
    """Returns the columns of an event's simulated particles, all pions, each [P].

    As in TrackML, a particle's id says which vertex it comes from and whether it is secondary. The
    perigee parameters are those of a straight line.
    """
    ids = particles["particle_id"].astype(np.int64)
    places = ("px", "py", "pz", "vx", "vy", "vz")
    px, py, pz, vx, vy, vz = (particles[name].astype(np.float64) for name in places)
    pt, zeros = np.hypot(px, py), np.zeros(len(ids), np.int64)
    return {name: particles[name] for name in places} | {
        "particle_id": stored_particle_ids(ids),
        "pdg_id": particles["particle_type"],
        "mass": np.full(len(ids), PION_MASS),
        "energy": np.sqrt(pt**2 + pz**2 + PION_MASS**2),
        "charge": particles["q"],
        "time": _flight(vx, vy, vz),
        "perigee_d0": (vy * px - vx * py) / pt,
        "perigee_z0": vz - (vx * px + vy * py) / pt**2 * pz,
        "num_tracker_hits": particles["nhits"],
        "num_calo_hits": zeros,
        "vertex_primary": ids >> 52,
        "primary": (ids & 0xFFFFFF) == 0,
        "parent_id": zeros - 1,
    }


def detector_codes(layers: DetectorLayers) -> dict[int, int]:
    """Returns ColliderML's detector code of each volume: volume_id -> code. In the pixels, 0 is the
    end cap at negative z, 1 the barrel, 2 the other end cap; 3 to 5 are these parts of the short
    strips, 6 to 8 of the long strips. Pixels, short and long strips follow each other outwards.
    """
    volumes: dict[int, list[tuple[float, int]]] = {0: [], 1: [], 2: []}  # by side: BARREL is 1
    for volume in np.unique(layers.volume_id).tolist():
        member = layers.volume_id == volume
        position = float(layers.position[member].mean())
        if layers.is_barrel[member].all():
            volumes[1].append((position, volume))
        else:
            volumes[2 * (position > 0)].append((float(layers.low[member].mean()), volume))
    return {
        volume: 3 * min(system, LAST_SYSTEM) + side
        for side, found in volumes.items()
        for system, (_, volume) in enumerate(sorted(found))
    }


def _flight(*places: NDArray[np.generic]) -> NDArray[np.float64]:
    """Returns the time of flight of light from the origin to x, y, z [N], in ns: [N]."""
    time: NDArray[np.float64] = np.linalg.norm([axis.astype(np.float64) for axis in places], axis=0)
    return time / LIGHT


EVENTS_PER_FILE = 10  # a stopped simulation repeats at most these


def write_sample(
    folder: Path, events: Sequence[int], layers: DetectorLayers, make: Callable[[int], Event]
) -> None:
    """Writes the numbered `events` that the sample in `folder` lacks: hits to tracker_hits, and
    truth, if known, to particles. `make` simulates an event. InputError if the number of an event
    or of a part of its detector does not fit the format.
    """
    sample = find_sample(folder)
    there = find_rows(sample.hits, MEASURED_HITS) if sample else {}
    missing = [event for event in events if event not in there]
    _remove_unfinished(folder, missing)
    made = follow(map(make, missing), len(missing), "simulate")
    for start in range(0, len(missing), EVENTS_PER_FILE):
        numbers = missing[start : start + EVENTS_PER_FILE]
        _write_file(folder, layers, numbers, islice(made, len(numbers)))
    next(made, None)  # lets `follow` report that all are done


def _remove_unfinished(folder: Path, missing: Sequence[int]) -> None:
    """Removes particle files of `missing` events that have no hits file, which a killed writer
    leaves. Files of other writers are not touched.
    """
    for path in (folder / "particles").glob("train-*-*.parquet"):
        first, last = map(int, path.stem.split("-")[1:])
        with_hits = (folder / "tracker_hits" / path.name).exists()
        if not with_hits and any(first <= event <= last for event in missing):
            path.unlink()


def _write_file(
    folder: Path, layers: DetectorLayers, numbers: Sequence[int], events: Iterable[Event]
) -> None:
    name = f"train-{numbers[0]:09d}-{numbers[-1]:09d}.parquet"
    with ExitStack() as open_tables:
        # Hits are placed last: readers find an event by its hits, once all else is there.
        tables: dict[str, pq.ParquetWriter] = {}
        for number, event in zip(numbers, events, strict=True):
            lists = {"tracker_hits": _hit_lists(event, layers)}
            if event.particles is not None:
                lists["particles"] = _particle_lists(event.particles)
            for table, columns in lists.items():
                row = _row(number, columns, TYPES[table])
                if table not in tables:
                    (folder / table).mkdir(parents=True, exist_ok=True)
                    path = open_tables.enter_context(atomic_path(folder / table / name))
                    writer = pq.ParquetWriter(path, row.schema)
                    tables[table] = open_tables.enter_context(writer)
                tables[table].write_table(row)


def _row(number: int, lists: Columns, types: dict[str, pa.DataType]) -> pa.Table:
    """Makes a table of one row for event `number`: its number, and a list for each column."""
    try:
        row = {EVENT_ID: pa.array([number], pa.uint32())}
        for name in [name for name in types if name in lists]:
            values = pa.array(lists[name], types[name])
            row[name] = pa.ListArray.from_arrays(np.array([0, len(values)], np.int32), values)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InputError(
            f"event {number}: its numbers do not fit ColliderML's columns ({reason(error)}); give "
            "a smaller --first-event or --particles, or leave out --format"
        ) from None
    return pa.table(row)
