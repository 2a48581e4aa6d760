"""A small ColliderML sample, written by its published types with nothing of bigtrk."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS = (90_000, 90_001, 90_007)
NO_PARTICLE = 2**64 - 1
HITS = {
    **dict.fromkeys(("x", "y", "z", "true_x", "true_y", "true_z", "time"), pa.float32()),
    "particle_id": pa.uint64(),
    "volume_id": pa.uint8(),
    "layer_id": pa.uint16(),
    "surface_id": pa.uint32(),
    "detector": pa.uint8(),
}
PARTICLES = {
    "particle_id": pa.uint64(),
    "pdg_id": pa.int64(),
    **dict.fromkeys(("mass", "energy", "charge", "px", "py", "pz"), pa.float32()),
    **dict.fromkeys(("vx", "vy", "vz", "time", "perigee_d0", "perigee_z0"), pa.float32()),
    **dict.fromkeys(("num_tracker_hits", "num_calo_hits", "vertex_primary"), pa.uint16()),
    "primary": pa.bool_(),
    "parent_id": pa.int64(),
}
Rows = list[dict[str, Any]]


def an_event(event: int, n_hits: int = 5, n_particles: int = 3) -> tuple[dict[str, Any], ...]:
    """A row of hits and one of particles: ids from 0, one hit of no particle."""
    rng = np.random.default_rng(event)
    hits: dict[str, Any] = {"event_id": event}
    for name, kind in HITS.items():
        float32 = rng.normal(0, 500, n_hits).astype(np.float32)
        hits[name] = float32 if kind == pa.float32() else rng.integers(1, 30, n_hits)
    hits["particle_id"] = rng.integers(0, n_particles, n_hits).astype(np.uint64)
    hits["particle_id"][-1] = NO_PARTICLE
    particles: dict[str, Any] = {"event_id": event}
    for name, kind in PARTICLES.items():
        float32 = rng.normal(0, 3, n_particles).astype(np.float32)
        particles[name] = float32 if kind == pa.float32() else rng.integers(0, 2, n_particles)
    particles["particle_id"] = np.arange(n_particles, dtype=np.uint64)[::-1]
    particles["primary"] = particles["primary"] == 1
    particles["pdg_id"] = np.array([-211, 211, 13][:n_particles])
    return hits, particles


def write_rows(path: Path, rows: Rows, types: dict[str, pa.DataType], per_group: int = 2) -> None:
    """Writes rows of lists; columns that no row has are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {"event_id": pa.array([row["event_id"] for row in rows], pa.uint32())}
    for name, kind in types.items():
        if any(name in row for row in rows):
            lists = [None if row[name] is None else list(row[name]) for row in rows]
            table[name] = pa.array(lists, pa.list_(kind))
    pq.write_table(pa.table(table), path, row_group_size=per_group)


def write_sample(folder: Path, hits: Rows, particles: Rows) -> None:
    """Writes hits and particles below `folder`, a file of each."""
    write_rows(folder / "tracker_hits" / "train-00000-of-00001.parquet", hits, HITS)
    if particles:
        write_rows(folder / "particles" / "train-00000-of-00001.parquet", particles, PARTICLES)


def rows() -> tuple[Rows, Rows]:
    """The rows of hits and of particles of `EVENTS`."""
    found = [an_event(event) for event in EVENTS]
    return [hits for hits, _ in found], [particles for _, particles in found]
