"""The tables of simulated events in ColliderML's columns."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bigtrk.events.colliderml.layout import stored_particle_ids
from bigtrk.events.event import Columns, Event
from bigtrk.events.geometry import DetectorLayers
from bigtrk.events.simulation.material import PION_MASS

Float32 = NDArray[np.float32]

LIGHT = 299.792458  # mm/ns
# The values of each list. Source: the release's own types.
HIT_TYPES = {
    **dict.fromkeys(("x", "y", "z", "true_x", "true_y", "true_z", "time"), pa.float32()),
    "particle_id": pa.uint64(),
    "volume_id": pa.uint8(),
    "layer_id": pa.uint16(),
    "surface_id": pa.uint32(),
    "detector": pa.uint8(),
}
PARTICLE_TYPES = {
    "particle_id": pa.uint64(),
    "pdg_id": pa.int64(),
    **dict.fromkeys(("mass", "energy", "charge", "vx", "vy", "vz", "time"), pa.float32()),
    **dict.fromkeys(("px", "py", "pz", "perigee_d0", "perigee_z0"), pa.float32()),
    **dict.fromkeys(("num_tracker_hits", "num_calo_hits", "vertex_primary"), pa.uint16()),
    "primary": pa.bool_(),
    "parent_id": pa.int64(),
}
BARREL, OTHER_SIDES = 1, {False: 0, True: 2}  # of a detector code: below, or above, the centre
LAST_SYSTEM = 2  # pixels 0, short strips 1, long strips 2


def hit_lists(event: Event, layers: DetectorLayers) -> Columns:
    """Returns the columns of an event's hits, each [N], in their order; those of truth where the
    event has it. Their time is that of a flight at the speed of light, straight from the origin.
    """
    hits = event.hits
    volume = hits["volume_id"].astype(np.int64)
    codes = detector_codes(layers)
    lists = {
        **_floats(hits, ("x", "y", "z")),
        "time": _flight(hits["x"], hits["y"], hits["z"]),
        "volume_id": volume,
        "layer_id": hits["layer_id"],
        "surface_id": hits["module_id"],
        "detector": np.array([codes[number] for number in volume.tolist()], np.int64),
    }
    if event.truth is not None:
        assert np.array_equal(event.truth["hit_id"], hits["hit_id"]), "truth is in order of hits"
        lists["particle_id"] = stored_particle_ids(event.truth["particle_id"])
        lists |= {f"true_{axis}": event.truth[f"t{axis}"].astype(np.float32) for axis in "xyz"}
    return lists


def particle_lists(particles: Columns) -> Columns:
    """Returns the columns of an event's simulated particles, each [P], which are pions.

    Their ids say, as TrackML's do, which vertex they are of, and whether they are secondaries. The
    parameters at the perigee are those of a straight line.
    """
    ids = particles["particle_id"].astype(np.int64)
    px, py, pz, vx, vy, vz = (
        particles[name].astype(np.float64) for name in ("px", "py", "pz", "vx", "vy", "vz")
    )
    pt = np.hypot(px, py)
    zeros, mass = np.zeros(len(ids), np.int64), np.full(len(ids), PION_MASS, np.float32)
    return {
        "particle_id": stored_particle_ids(ids),
        "pdg_id": particles["particle_type"],
        "mass": mass,
        "energy": np.sqrt(pt**2 + pz**2 + PION_MASS**2).astype(np.float32),
        "charge": particles["q"].astype(np.float32),
        **_floats(particles, ("vx", "vy", "vz", "px", "py", "pz")),
        "time": _flight(vx, vy, vz),
        "perigee_d0": ((vy * px - vx * py) / pt).astype(np.float32),
        "perigee_z0": (vz - (vx * px + vy * py) / pt**2 * pz).astype(np.float32),
        "num_tracker_hits": particles["nhits"],
        "num_calo_hits": zeros,
        "vertex_primary": ids >> 52,
        "primary": (ids & 0xFFFFFF) == 0,
        "parent_id": zeros - 1,
    }


def detector_codes(layers: DetectorLayers) -> dict[int, int]:
    """Returns ColliderML's code of each volume of a detector: 0, 1 and 2 of the pixels' end cap at
    negative z, barrel, and other end cap, 3 to 5 of short and 6 to 8 of long strips, which follow
    from inside out.
    """
    volumes: dict[int, list[tuple[float, int]]] = {0: [], 1: [], 2: []}
    for volume in np.unique(layers.volume_id).tolist():
        member = layers.volume_id == volume
        position = float(layers.position[member].mean())
        if layers.is_barrel[member].all():
            volumes[BARREL].append((position, volume))
        else:
            radius = float(layers.low[member].mean())
            volumes[OTHER_SIDES[position > 0]].append((radius, volume))
    return {
        volume: 3 * min(system, LAST_SYSTEM) + side
        for side, found in volumes.items()
        for system, (_, volume) in enumerate(sorted(found))
    }


def _floats(table: Columns, names: tuple[str, ...]) -> Columns:
    return {name: table[name].astype(np.float32) for name in names}


def _flight(x: NDArray[np.generic], y: NDArray[np.generic], z: NDArray[np.generic]) -> Float32:
    """Returns the time that light takes from the origin, [N] float32 (ns)."""
    squared = np.sum([axis.astype(np.float64) ** 2 for axis in (x, y, z)], axis=0)
    time: Float32 = (np.sqrt(squared) / LIGHT).astype(np.float32)
    return time
