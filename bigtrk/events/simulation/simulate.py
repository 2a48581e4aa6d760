"""A simulated event: helices, material, layers, noise, measurement, in TrackML's tables."""

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import NOISE, Columns, Event, event_name
from bigtrk.events.geometry import TRACKML_LAYERS, DetectorLayers
from bigtrk.events.open_data_detector import ODD_BEAM_SIGMA_Z, is_open_data_detector
from bigtrk.events.simulation.deposits import (
    NO_PARTICLE,
    Deposits,
    concatenate,
    noise_deposits,
    particle_deposits,
)
from bigtrk.events.simulation.digitisation import fired_cells, measure, merge_deposits, to_global
from bigtrk.events.simulation.particles import BEAM_SIGMA_Z, generate_particles

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

NOISE_SHARE = 0.17  # TrackML: 0.15 to 0.23
MIN_WEIGHTED_HITS = 4
DIGITS = 6
SMALLEST = 1e-16  # powers of ten are exact up to 10^22


def check_simulated(n_particles: int, seed: int, event_id: int) -> None:
    """Checks that an event can be simulated.

    Raises:
        InputError: n_particles is less than 1, or seed or event_id is negative.
    """
    if n_particles < 1 or seed < 0 or event_id < 0:
        raise InputError(
            f"cannot simulate {n_particles} particles with seed {seed} as event {event_id}: "
            "give at least 1 particle and no negative numbers"
        )


def simulate_event(
    n_particles: int,
    seed: int,
    event_id: int = 0,
    detector: DetectorLayers = TRACKML_LAYERS,
) -> Event:
    """Simulates an event of `n_particles`, the same for the same (seed, event_id).

    About eight signal hits per particle and 17 % noise, from a beam spot as long as in TrackML's
    events (5.5 mm) or, in the Open Data Detector, in ColliderML's (55.5 mm). Particles scatter and
    lose energy in the layers' material. Not simulated: decays in flight, secondary particles, turns
    of a helix beyond the first half. Floats have six digits, as TrackML's have, so that writing and
    reading the event changes nothing.

    Raises:
        InputError: n_particles is less than 1, or seed or event_id is negative.
    """
    check_simulated(n_particles, seed, event_id)
    rng = np.random.default_rng([seed, event_id])
    is_odd = is_open_data_detector(detector.volume_id)
    beam_sigma_z = ODD_BEAM_SIGMA_Z if is_odd else BEAM_SIGMA_Z
    particles = generate_particles(n_particles, rng, beam_sigma_z)
    signal = particle_deposits(particles, detector, rng)
    deposits = concatenate(signal, noise_deposits(signal, NOISE_SHARE, detector, rng))
    hit, leading = merge_deposits(deposits, detector)
    lead = deposits.take(leading)
    u, v = measure(deposits, hit, detector, rng)
    particle_id = np.where(
        lead.particle == NO_PARTICLE, NOISE, particles["particle_id"][lead.particle]
    )
    particles["nhits"] = np.bincount(
        lead.particle[lead.particle != NO_PARTICLE], minlength=n_particles
    )
    hits = _hit_table(lead, u, v, detector)
    truth = _truth_table(lead, particle_id, hits["hit_id"], _weights(lead, particles), detector)
    cells = fired_cells(deposits, hit, detector)
    cells = {"hit_id": cells.pop("hit") + 1, **cells}
    tables = (_rounded(table) for table in (hits, cells, particles, truth))
    return Event(event_name(event_id), *tables)


def _hit_table(lead: Deposits, u: Float64, v: Float64, detector: DetectorLayers) -> Columns:
    x, y, z = to_global(lead, u, v, detector)
    return {
        "hit_id": np.arange(1, len(lead) + 1),
        "x": x,
        "y": y,
        "z": z,
        "volume_id": detector.volume_id[lead.layer],
        "layer_id": detector.layer_id[lead.layer],
        "module_id": detector.module_id(lead.layer, lead.column, lead.row),
    }


def _truth_table(
    lead: Deposits,
    particle_id: Int64,
    hit_id: NDArray[np.generic],
    weight: Float64,
    detector: DetectorLayers,
) -> Columns:
    tx, ty, tz = to_global(lead, lead.u, lead.v, detector)
    return {
        "hit_id": hit_id,
        "particle_id": particle_id,
        "tx": tx,
        "ty": ty,
        "tz": tz,
        "tpx": lead.px,
        "tpy": lead.py,
        "tpz": lead.pz,
        "weight": weight,
    }


def _weights(lead: Deposits, particles: Columns) -> Float64:
    """Returns weights like TrackML's, [N], of sum 1: 0.2 below 0.5 GeV, 1 above 3 GeV."""
    nhits = particles["nhits"].astype(np.int64)
    pt = np.hypot(particles["px"].astype(np.float64), particles["py"].astype(np.float64))
    counts = (lead.particle != NO_PARTICLE) & (nhits[lead.particle] >= MIN_WEIGHTED_HITS)
    weight: Float64 = counts * np.interp(pt[lead.particle], [0.5, 3.0], [0.2, 1.0])
    total = float(weight.sum())
    return weight / total if total else weight


def _rounded(table: Columns) -> Columns:
    return {
        name: _to_digits(values.astype(np.float64)) if values.dtype.kind == "f" else values
        for name, values in table.items()
    }


def _to_digits(values: Float64) -> Float64:
    """Rounds values to DIGITS significant decimal digits."""
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), SMALLEST)))
    scale = 10.0 ** np.abs(DIGITS - 1 - magnitude)
    # Dividing by a power of ten is exact to the last bit, multiplying by its inverse is not.
    fine: Float64 = np.rint(values * scale) / scale
    return np.where(magnitude < DIGITS, fine, np.rint(values / scale) * scale)
