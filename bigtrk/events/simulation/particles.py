"""Simulated particles with spectra like those of TrackML's."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from bigtrk.events.event import Columns

Float64 = NDArray[np.float64]

# Quantiles of event 1000: pT 0.10 (least), 0.22, 0.36, 0.63, 1.5 GeV (95 %);
# |eta| below 4, half of it within 1.46.
MIN_PT = 0.1
PT_SCALE = 1.75  # GeV
PT_POWER = 5.0
MAX_ETA = 4.0
ETA_SIGMA = 2.5
BEAM_SIGMA_Z = 5.5  # mm, as in event 1000 of the challenge's training set
BEAM_SIGMA_XY = 0.01  # mm
# Event 1000, particles of >= 3 hits: 42 % start more than 1 mm from the beam at 0.15 GeV, 31 % at
# 0.3 GeV, 8 % above 1 GeV; half of them within 35 to 75 mm.
DISPLACED_LEAST = 0.07
DISPLACED_SOFT = 0.6
DISPLACED_PT = 0.3  # GeV
DISPLACED_MEAN = 80.0  # mm, transverse
DECAY_MOMENTUM = 0.2  # GeV, a pion's in the rest frame of the K0 it comes from
PARTICLES_PER_VERTEX = 50
MAX_VERTICES = 2000  # the id has 12 bits for the vertex; the first keeps an int64 positive
PION = 211


def generate_particles(
    n_particles: int, rng: np.random.Generator, beam_sigma_z: float = BEAM_SIGMA_Z
) -> Columns:
    """Generates a particle table without nhits: P = `n_particles` rows, ascending by particle_id.

    pT falls as (1 + pT / 1.75 GeV)^-6 from 0.1 GeV; some particles, soft ones above all, start at
    a secondary vertex, displaced roughly along their own direction. beam_sigma_z (mm): the spread
    of the primary vertices along the beam.
    """
    vertices = min(max(1, n_particles // PARTICLES_PER_VERTEX), MAX_VERTICES)
    vertex = np.sort(rng.integers(vertices, size=n_particles))
    pt = MIN_PT + PT_SCALE * rng.pareto(PT_POWER, n_particles)
    share = DISPLACED_LEAST + DISPLACED_SOFT * np.exp(-pt / DISPLACED_PT)
    displaced = rng.random(n_particles) < share
    phi = rng.uniform(-np.pi, np.pi, n_particles)
    edge = ndtr(MAX_ETA / ETA_SIGMA)
    eta = ETA_SIGMA * ndtri(rng.uniform(1 - edge, edge, n_particles))
    x, y, z = _vertices(vertex, vertices, beam_sigma_z, rng)
    dx, dy, dz = _displacements(pt, phi, eta, displaced, rng)
    charge = rng.choice([-1.0, 1.0], n_particles)
    return {
        "particle_id": _particle_ids(vertex, displaced),
        "particle_type": (charge * PION).astype(np.int64),
        "vx": x + dx,
        "vy": y + dy,
        "vz": z + dz,
        "px": pt * np.cos(phi),
        "py": pt * np.sin(phi),
        "pz": pt * np.sinh(eta),
        "q": charge,
    }


def _vertices(
    vertex: NDArray[np.int64], vertices: int, sigma_z: float, rng: np.random.Generator
) -> tuple[Float64, Float64, Float64]:
    sigmas = np.array([[BEAM_SIGMA_XY], [BEAM_SIGMA_XY], [sigma_z]])
    x, y, z = rng.normal(size=(3, vertices)) * sigmas
    return x[vertex], y[vertex], z[vertex]


def _displacements(
    pt: Float64,
    phi: Float64,
    eta: Float64,
    displaced: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Float64, Float64, Float64]:
    """Draws the flight of a neutral parent, off the particle's direction by its decay momentum."""
    angle = np.minimum(DECAY_MOMENTUM / pt, 1.0)
    flight = np.where(displaced, rng.exponential(DISPLACED_MEAN, len(phi)), 0.0)
    parent_phi = phi + angle * rng.normal(size=len(phi))
    parent_eta = eta + angle * rng.normal(size=len(phi))
    return (
        flight * np.cos(parent_phi),
        flight * np.sin(parent_phi),
        flight * np.sinh(parent_eta),
    )


def _particle_ids(vertex: NDArray[np.int64], displaced: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Packs ids as TrackML does: vertex (from bit 52), number (24), generation (16), child (0)."""
    number = np.arange(len(vertex)) - np.searchsorted(vertex, vertex)
    assert number.max(initial=0) < 2**28, "more particles than the id can number"
    return (vertex + 1 << 52) + (number + 1 << 24) + displaced * ((1 << 16) + number % 997 + 1)
