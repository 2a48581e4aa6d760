"""Two events made by hand, with tracks whose every figure can be counted on fingers."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns, Event
from bigtrk.events.trackml import write_event

# Particle 7 made hits 1 to 4, particle 8 hits 5 to 7, 8 and 9 are noise; hits 4 and 9 are in no
# track. Track 0 has three hits of particle 7 and one of 8, track 5 two of particle 8 and noise.
FIRST, FIRST_TRACKS = "event000000021", {1: 0, 2: 0, 3: 0, 5: 0, 6: 5, 7: 5, 8: 5, 9: -1}
FIRST_PARTICLES = [7, 7, 7, 7, 8, 8, 8, 0, 0]
FIRST_WEIGHTS = [0.125, 0.125, 0.125, 0.125, 0.25, 0.125, 0.125, 0, 0]
FIRST_SCORE = 0.125 * 3 + 0.125 * 2
# Particle 7 made all six hits, half of them in each track.
SECOND, SECOND_TRACKS = "event000000022", {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1}
SECOND_PARTICLES = [7] * 6


def event(name: str, particle_of_hit: list[int], weight: list[float]) -> Event:
    """Hits from 1 on at (0, 0, 0), and particles 7 and 8 of pT 2 GeV."""
    n_hits = len(particle_of_hit)
    hits: Columns = {"hit_id": np.arange(n_hits) + 1}
    hits |= {name: np.zeros(n_hits) for name in "xyz"}
    hits |= {name: np.zeros(n_hits, np.int64) for name in ("volume_id", "layer_id", "module_id")}
    particles: Columns = {"particle_id": np.array([7, 8])}
    particles |= {name: np.zeros(2) for name in ("vx", "vy", "vz", "py", "pz", "q")}
    particles["px"] = np.full(2, 2.0)
    truth: Columns = {"hit_id": hits["hit_id"], "particle_id": np.array(particle_of_hit)}
    return Event(name, hits, None, particles, truth | {"weight": np.array(weight)})


def write_events(folder: Path) -> Path:
    """Write both."""
    write_event(event(FIRST, FIRST_PARTICLES, FIRST_WEIGHTS), folder)
    write_event(event(SECOND, SECOND_PARTICLES, [0.5] * 6), folder)
    return folder


def columns(tracks: dict[int, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hit ids and track ids."""
    return np.array(list(tracks), np.int64), np.array(list(tracks.values()), np.int64)
