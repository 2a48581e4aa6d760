"""One collision event, as columns of numpy arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A table: column name -> [rows]; ids int64, positions and momenta float64 (mm, GeV).
Columns = dict[str, NDArray[np.generic]]

NOISE = 0  # particle_id of a hit that no particle made


@dataclass(frozen=True, eq=False)  # arrays have no one answer to ==
class Event:
    """The tables of one event in TrackML's column names.

    hits: hit_id [N] int64, x y z [N] float64 (mm), volume_id layer_id module_id [N] int64.
    cells: hit_id ch0 ch1 [C] int64, value [C] float64.
    particles: particle_id [P] int64, vx vy vz (mm) px py pz (GeV) q [P] float64 and, where known,
    particle_type (PDG code) nhits primary (1, else 0) [P] int64.
    truth: hit_id particle_id [T] int64 and, where known, tx ty tz (mm) tpx tpy tpz (GeV) weight.
    """

    name: str  # "event000001000"
    hits: Columns
    cells: Columns | None = None
    particles: Columns | None = None
    truth: Columns | None = None


def event_name(number: int) -> str:
    """Returns the name of event `number`, as TrackML's files have it: "event000001000"."""
    return f"event{number:09d}"
