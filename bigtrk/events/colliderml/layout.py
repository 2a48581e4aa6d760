"""The files and columns of a ColliderML sample: Parquet, a row per event, a list per column.

Source: the data card of CERN/ColliderML-Release-1. Tables are found wherever their files or folders
have their names: `data/ttbar_pu200_tracker_hits/train-00000-of-01000.parquet` of the release, also
in the cache of the package colliderml; the production's `ttbar.v1.reco.tracker_hits.events0-9.
parquet`; or simply `tracker_hits/*.parquet`.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.disk.files import check_file
from bigtrk.errors import InputError
from bigtrk.events.columns import TableSpec

EVENT_ID = "event_id"
# What a detector measures, and all that simulated hits know.
MEASURED_HITS = TableSpec(
    stems=("tracker_hits",),
    ids=("volume_id", "layer_id", "surface_id"),
    finite=("x", "y", "z"),
)
TRACKER_HITS = replace(
    MEASURED_HITS,
    optional_ids=("particle_id",),
    optional_floats=("true_x", "true_y", "true_z"),
)
PARTICLES = TableSpec(
    stems=("particles",),
    ids=("particle_id",),
    floats=("vx", "vy", "vz", "px", "py", "pz", "charge"),
    optional_ids=("pdg_id", "num_tracker_hits", "primary"),
)
FLAGS = ("primary",)  # may be booleans; 0 or 1 here
# The names that these columns have in an `Event`; others keep theirs.
OURS = {
    "surface_id": "module_id",
    "true_x": "tx",
    "true_y": "ty",
    "true_z": "tz",
    "charge": "q",
    "pdg_id": "particle_type",
    "num_tracker_hits": "nhits",
}
_TABLE = re.compile(r"(?:^|[._-])(tracker_hits|particles)(?=[._-]|$)")


class StoredFile(NamedTuple):
    """A file as it was found: its content is read again once `size` or `modified` are others."""

    path: Path
    size: int  # bytes
    modified: int  # ns


@dataclass(frozen=True)
class Sample:
    """The files of a sample, ascending by path; those of particles may be none."""

    path: Path
    hits: tuple[StoredFile, ...]
    particles: tuple[StoredFile, ...]


def find_sample(path: Path) -> Sample | None:
    """Finds the files of hits and particles below a folder; None where there are no hits.

    `path` may also be what the names of several folders begin with: `data/ttbar_pu200` stands for
    `data/ttbar_pu200_tracker_hits` and `data/ttbar_pu200_particles`.

    Raises:
        InputError: `path` is one of a sample's files, or a file of it cannot be read.
    """
    if path.is_file() and path.suffix == ".parquet":
        raise InputError(
            f"{path}: is one file of a sample; name the folder that holds its tracker_hits and "
            "particles"
        )
    files: dict[str, list[StoredFile]] = {"tracker_hits": [], "particles": []}
    for root in [path] if path.is_dir() else _folders_named(path):
        for file in _parquet_files(root):
            if table := _table_of(file, root):
                files[table].append(_stored(file))
    hits, particles = map(tuple, files.values())
    return Sample(path, hits, particles) if hits else None


def _folders_named(prefix: Path) -> list[Path]:
    """Lists the folders of tables whose names begin with that of `prefix`."""
    if not prefix.parent.is_dir():
        return []
    beginning = f"{prefix.name}_"
    return sorted(
        entry
        for entry in prefix.parent.iterdir()
        if entry.name.startswith(beginning) and _TABLE.search(entry.name) and entry.is_dir()
    )


def _parquet_files(root: Path) -> list[Path]:
    """Lists the Parquet files below a folder, ascending: also those of linked folders, of each
    once, but no hidden ones, such as macOS's "._name" and the copies that notebooks keep.
    """
    files: list[Path] = []
    seen = set()
    for folder, inner, names in os.walk(root, followlinks=True):
        visible = [name for name in sorted(inner) if not name.startswith(".")]
        inner[:] = [] if (place := os.path.realpath(folder)) in seen else visible
        if place not in seen:
            parquet = (name for name in names if name.endswith(".parquet") and name[0] != ".")
            files.extend(Path(folder, name) for name in parquet)
        seen.add(place)
    return sorted(files)


def _table_of(file: Path, root: Path) -> str | None:
    """Names the table that a file is of: the file's name says it, or that of the nearest folder."""
    for part in (file.name, *reversed(file.relative_to(root).parts[:-1]), root.name):
        if match := _TABLE.search(part):
            return match[1]
    return None


def _stored(path: Path) -> StoredFile:
    check_file(path)
    status = path.stat()
    return StoredFile(path, status.st_size, status.st_mtime_ns)


def particle_numbers(stored: NDArray[np.generic]) -> NDArray[np.int64]:
    """Returns the ids that particles have here, one more than those stored: [M] -> [M].

    Stored ones count a list from 0, which is noise here, and 2^64 - 1 stands for no particle: that
    one becomes 0. Ids beyond 2^63 - 2 become negative, and no others do.
    """
    return (stored.astype(np.uint64) + np.uint64(1)).astype(np.int64)


def stored_particle_ids(ours: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Inverts `particle_numbers`: [M] -> [M]."""
    return ours.astype(np.uint64) - np.uint64(1)
