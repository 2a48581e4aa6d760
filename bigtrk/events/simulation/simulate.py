"""Simulates an event in TrackML's tables: particles, deposits in modules, noise, measured hits."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from bigtrk.events.event import NOISE, Columns, Event, event_name
from bigtrk.events.geometry import (
    ODD_BEAM_SIGMA_Z,
    ODD_FIELD,
    TRACKML_LAYERS,
    DetectorLayers,
    is_open_data_detector,
)
from bigtrk.events.simulation.tracks import (
    FIELD,
    MAX_SLOPE,
    Crossings,
    Float64,
    Int64,
    Table,
    helices,
    places,
    propagate,
)

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
MAX_VERTICES = 2000  # ids have 12 bits for the vertex; the highest stays 0 to keep int64 positive
PION = 211


def generate_particles(
    n_particles: int, rng: np.random.Generator, beam_sigma_z: float = BEAM_SIGMA_Z
) -> Columns:
    """Generates P = `n_particles` particles: a table without nhits, ascending by particle_id.

    The density of pT falls as (1 + pT / 1.75 GeV)^-6 from 0.1 GeV on. Some particles, mostly soft
    ones, start at a secondary vertex, displaced roughly along their own direction. beam_sigma_z
    (mm): the spread of the primary vertices along the beam.
    """
    vertices = min(max(1, n_particles // PARTICLES_PER_VERTEX), MAX_VERTICES)
    vertex = np.sort(rng.integers(vertices, size=n_particles))
    pt = MIN_PT + PT_SCALE * rng.pareto(PT_POWER, n_particles)
    share = DISPLACED_LEAST + DISPLACED_SOFT * np.exp(-pt / DISPLACED_PT)
    displaced = rng.random(n_particles) < share
    phi = rng.uniform(-np.pi, np.pi, n_particles)
    edge = ndtr(MAX_ETA / ETA_SIGMA)
    eta = ETA_SIGMA * ndtri(rng.uniform(1 - edge, edge, n_particles))
    sigmas = np.array([[BEAM_SIGMA_XY], [BEAM_SIGMA_XY], [beam_sigma_z]])
    x, y, z = (rng.normal(size=(3, vertices)) * sigmas)[:, vertex]
    # A neutral parent flies at an angle to the particle, which follows from the decay momentum.
    angle = np.minimum(DECAY_MOMENTUM / pt, 1.0)
    flight = np.where(displaced, rng.exponential(DISPLACED_MEAN, n_particles), 0.0)
    parent_phi = phi + angle * rng.normal(size=n_particles)
    parent_eta = eta + angle * rng.normal(size=n_particles)
    charge = rng.choice([-1.0, 1.0], n_particles)
    # As TrackML packs it: vertex (from bit 52), number (24), generation (16), child (0).
    number = np.arange(n_particles) - np.searchsorted(vertex, vertex)
    assert number.max(initial=0) < 2**28, "more particles than the id can number"
    child = displaced * ((1 << 16) + number % 997 + 1)
    return {
        "particle_id": (vertex + 1 << 52) + (number + 1 << 24) + child,
        "particle_type": (charge * PION).astype(np.int64),
        "vx": x + flight * np.cos(parent_phi),
        "vy": y + flight * np.sin(parent_phi),
        "vz": z + flight * np.sinh(parent_eta),
        "px": pt * np.cos(phi),
        "py": pt * np.sin(phi),
        "pz": pt * np.sinh(eta),
        "q": charge,
    }


INEFFICIENCY = 0.02
ODD_INEFFICIENCY = 0.003  # less than 1 % of the production's tracks skip a layer
# Chance to stop in a module (nuclear interactions); it gives TrackML's eight hits per particle.
STOPPED_PER_MODULE = 0.04
CHARGE_PER_MM = 1.5  # gives the 0.30 to 0.35 per pixel cluster of TrackML's cells
NO_PARTICLE = -1


@dataclass(frozen=True)
class Deposits(Table):
    """D deposits of charge, each field [D].

    particle: row of the particle table, -1 for noise. layer: row of the layer table. column, row:
    place of the module in its layer. u v (mm): from the module's centre, along phi (an arc at the
    module's arc_radius) and along the row. slope_u slope_v: the track's du and dv per length along
    the normal. charge (arbitrary units). px py pz (GeV): true momentum.
    """

    particle: Int64
    layer: Int64
    column: Int64
    row: Int64
    u: Float64
    v: Float64
    slope_u: Float64
    slope_v: Float64
    charge: Float64
    px: Float64
    py: Float64
    pz: Float64

    def __len__(self) -> int:
        return len(self.particle)


def particle_deposits(
    particles: Columns, layers: DetectorLayers, rng: np.random.Generator
) -> Deposits:
    """Simulates the deposits of particles, for half a turn at most, in a solenoid's field and the
    material of `layers`. The field is 3 T in the Open Data Detector, otherwise 2 T.
    """
    is_odd = is_open_data_detector(layers.volume_id)
    field, missed = (ODD_FIELD, ODD_INEFFICIENCY) if is_odd else (FIELD, INEFFICIENCY)
    # A random stream of its own, so that modules draw the same numbers without material.
    crossings = propagate(helices(particles, field), layers, rng.spawn(1)[0])
    deposits, inside = _in_modules(crossings, layers)
    deposits, angle = deposits.take(inside), crossings.angle[inside]
    stopped_at = rng.geometric(STOPPED_PER_MODULE, deposits.particle.max(initial=-1) + 1)
    alive = places(deposits.particle, angle) < stopped_at[deposits.particle]
    deposits = deposits.take(alive)
    deposits = deposits.take(rng.random(len(deposits)) >= missed)
    return replace(deposits, charge=deposits.charge * rng.gamma(9.0, 1 / 9.0, len(deposits)))


def noise_deposits(
    signal: Deposits, share: float, layers: DetectorLayers, rng: np.random.Generator
) -> Deposits:
    """Draws noise, a `share` of all deposits, on each layer in proportion to its signal."""
    count = round(len(signal) * share / (1 - share))
    layer = signal.layer[rng.integers(len(signal), size=count)] if len(signal) else signal.layer
    count = len(layer)
    column = rng.integers(layers.n_phi[layer])
    row = rng.integers(layers.n_rows[layer])
    v = rng.uniform(-0.5, 0.5, count) * layers.row_length[layer]
    half_u = layers.half_angle[layer] * layers.arc_radius(layer, column, row)
    u = rng.uniform(-1, 1, count) * half_u
    charge = CHARGE_PER_MM * layers.thickness[layer] * rng.uniform(0.1, 0.6, count)
    zeros = np.zeros(count)
    particle = np.full(count, NO_PARTICLE)
    return Deposits(particle, layer, column, row, u, v, zeros, zeros, charge, zeros, zeros, zeros)


def _in_modules(crossings: Crossings, layers: DetectorLayers) -> tuple[Deposits, NDArray[np.bool_]]:
    """Returns a deposit of each crossing, in its side's nearest column, and if it hits a module."""
    layer, x, y, pz = crossings.layer, crossings.x, crossings.y, crossings.pz
    px, py = crossings.px, crossings.py
    phi, radius = np.arctan2(y, x), np.hypot(x, y)
    barrel = layers.is_barrel[layer]
    along = layers.along(layer, x, y, crossings.z)
    # The nearest column on the crossing's side: even columns or odd ones.
    side, n_phi = crossings.side, layers.n_phi[layer]
    place = (phi + np.pi) / (2 * np.pi) * n_phi - 0.5
    column = np.mod(2 * np.rint((place - side) / 2).astype(np.int64) + side, n_phi)
    row = np.floor((along - layers.low[layer]) / layers.row_length[layer]).astype(np.int64)
    from_centre = np.mod(phi - layers.column_phi(layer, column) + np.pi, 2 * np.pi) - np.pi
    inside = (row >= 0) & (row < layers.n_rows[layer])
    inside &= np.abs(from_centre) <= layers.half_angle[layer]
    p_phi, p_r = (py * x - px * y) / radius, (px * x + py * y) / radius
    slope_u = _slope(p_phi, np.where(barrel, p_r, pz))
    slope_v = _slope(np.where(barrel, pz, p_r), np.where(barrel, p_r, pz))
    path = layers.thickness[layer] * np.sqrt(1 + slope_u**2 + slope_v**2)
    u = from_centre * layers.arc_radius(layer, column, row)
    v = along - layers.row_centre(layer, row)
    charge = CHARGE_PER_MM * path
    who = crossings.particle
    return Deposits(who, layer, column, row, u, v, slope_u, slope_v, charge, px, py, pz), inside


def _slope(along: Float64, normal: Float64) -> Float64:
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = along / normal
    return np.clip(np.nan_to_num(slope), -MAX_SLOPE, MAX_SLOPE)


STRIP_PITCH = 1.0  # mm; modules of a longer pitch_v are strips, whose cells read 1
# mm; hits on longer strips are put at the strip's middle, since an error of pitch / sqrt(12) could
# put them outside the module.
LONG_STRIP = 20.0


def merge_deposits(deposits: Deposits, layers: DetectorLayers) -> tuple[Int64, Int64]:
    """Merges deposits in the same cell of a module into one hit.

    Returns the hit of each deposit, [D], and the deposit with the largest charge of each hit, [N].
    Hits are sorted by layer and module.
    """
    position = _cell_position(deposits, deposits.u, deposits.v, layers)
    channel_u, channel_v = (np.floor(cells).astype(np.int64) for cells in position)
    module = deposits.row * layers.n_phi[deposits.layer] + deposits.column
    order, begin = _groups(deposits.layer, module, channel_u, channel_v)
    count = np.diff(begin, append=len(order))
    hit = np.empty(len(order), dtype=np.int64)
    hit[order] = np.repeat(np.arange(len(begin)), count)
    by_charge = np.lexsort((-deposits.charge, hit))
    return hit, by_charge[begin]


def measure(
    deposits: Deposits, hit: Int64, layers: DetectorLayers, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Returns the measured u and v of each hit, [N] (mm): the mean over its deposits, weighted by
    charge, smeared by pitch / sqrt(12). For long strips v is the middle of the strip.
    """
    weight = np.bincount(hit, deposits.charge)
    layer = np.zeros(len(weight), dtype=np.int64)
    layer[hit] = deposits.layer
    measured = []
    for true, pitch in ((deposits.u, layers.pitch_u), (deposits.v, layers.pitch_v)):
        mean = np.bincount(hit, deposits.charge * true) / weight
        measured.append(mean + rng.normal(size=len(mean)) * pitch[layer] / np.sqrt(12))
    half, pitch = layers.row_length[layer] / 2, layers.pitch_v[layer]
    start = np.floor(_in_cells(mean, half, pitch)) * pitch
    middle = (start + np.minimum(start + pitch, 2 * half)) / 2 - half
    return measured[0], np.where(pitch > LONG_STRIP, middle, measured[1])


def to_global(
    lead: Deposits, u: Float64, v: Float64, layers: DetectorLayers
) -> tuple[Float64, Float64, Float64]:
    """Converts u, v [N] on the modules of `lead` [N] to global x, y, z, each [N] (mm)."""
    barrel = layers.is_barrel[lead.layer]
    across = layers.surface(lead.layer, lead.column)
    along = layers.row_centre(lead.layer, lead.row) + v
    radius = np.where(barrel, across, along)
    phi = layers.column_phi(lead.layer, lead.column)
    phi += u / layers.arc_radius(lead.layer, lead.column, lead.row)
    return radius * np.cos(phi), radius * np.sin(phi), np.where(barrel, along, across)


def fired_cells(deposits: Deposits, hit: Int64, layers: DetectorLayers) -> Columns:
    """Returns the cells of each hit: hit_id (from 1) ch0 ch1 [C] int64, value [C] float64.

    A deposit's track is a straight line through the sensor; each cell it crosses gets the charge of
    its part of the line. Charges in one cell of a hit are added; strips read 1.
    """
    half_depth = layers.thickness[deposits.layer] / 2
    reach_u, reach_v = half_depth * deposits.slope_u, half_depth * deposits.slope_v
    entry = _cell_position(deposits, deposits.u - reach_u, deposits.v - reach_v, layers)
    leave = _cell_position(deposits, deposits.u + reach_u, deposits.v + reach_v, layers)
    deposit, start, end = _segments(entry, leave)
    middle = (start + end) / 2
    channels = [
        np.floor(a[deposit] + middle * (b - a)[deposit]).astype(np.int64)
        for a, b in zip(entry, leave, strict=True)
    ]
    value = (end - start) * deposits.charge[deposit]
    order, begin = _groups(hit[deposit], *channels)
    total = np.add.reduceat(value[order], begin) if len(begin) else value
    first = order[begin]
    is_strip = layers.pitch_v[deposits.layer[deposit[first]]] > STRIP_PITCH
    return {
        "hit_id": hit[deposit[first]] + 1,
        "ch0": channels[0][first],
        "ch1": channels[1][first],
        "value": np.where(is_strip, 1.0, total),
    }


def _groups(*keys: Int64) -> tuple[Int64, NDArray[np.intp]]:
    """Returns the order that sorts by `keys`, and where each combination of keys starts in it."""
    order = np.lexsort(keys[::-1])
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return order, np.flatnonzero(starts)


def _cell_position(
    deposits: Deposits, u: Float64, v: Float64, layers: DetectorLayers
) -> tuple[Float64, Float64]:
    """Converts u and v to units of cells from the module's corner, clipped at its edges."""
    layer = deposits.layer
    half_v = layers.row_length[layer] / 2
    half_u = layers.half_angle[layer] * layers.arc_radius(layer, deposits.column, deposits.row)
    return (
        _in_cells(u, half_u, layers.pitch_u[layer]),
        _in_cells(v, half_v, layers.pitch_v[layer]),
    )


def _in_cells(along: Float64, half: Float64, pitch: Float64) -> Float64:
    return np.clip(along + half, 0.0, np.nextafter(2 * half, 0.0)) / pitch


def _segments(
    entry: tuple[Float64, ...], leave: tuple[Float64, ...]
) -> tuple[Int64, Float64, Float64]:
    """Cuts tracks at borders of cells: each piece's deposit, start and end (0 to 1), [S] each."""
    every = np.arange(len(entry[0]))
    cuts = [(every, np.zeros(len(every))), (every, np.ones(len(every)))]
    cuts += [_border_crossings(a, b) for a, b in zip(entry, leave, strict=True)]
    deposit, part = (np.concatenate(parts) for parts in zip(*cuts, strict=True))
    order = np.lexsort((part, deposit))
    deposit, part = deposit[order], part[order]
    same = deposit[1:] == deposit[:-1]
    return deposit[1:][same], part[:-1][same], part[1:][same]


def _border_crossings(entry: Float64, leave: Float64) -> tuple[Int64, Float64]:
    """Finds where tracks cross whole numbers: the track, and the fraction of its way, of each."""
    low, high = np.minimum(entry, leave), np.maximum(entry, leave)
    first = np.floor(low).astype(np.int64) + 1
    count = np.maximum(np.ceil(high).astype(np.int64) - first, 0)
    track = np.repeat(np.arange(len(entry)), count)
    within = np.arange(len(track)) - np.repeat(np.cumsum(count) - count, count)
    border = first[track] + within
    return track, (border - entry[track]) / (leave - entry)[track]


NOISE_SHARE = 0.17  # TrackML: 0.15 to 0.23
MIN_WEIGHTED_HITS = 4
DIGITS = 6
SMALLEST = 1e-16  # powers of ten are exact up to 10^22


def simulate_event(
    n_particles: int, seed: int, event_id: int = 0, detector: DetectorLayers = TRACKML_LAYERS
) -> Event:
    """Simulates an event with `n_particles` particles, the same for the same (seed, event_id).

    It has about eight signal hits per particle and 17 % noise. The beam spot is as long as in
    TrackML's events (5.5 mm) or, in the Open Data Detector, in ColliderML's (55.5 mm). Particles
    scatter and lose energy in the layers' material. Decays in flight, secondary particles, and
    turns of a helix beyond the first half are not simulated. Floats have six digits, as in
    TrackML's files, so writing and reading the event changes nothing.
    """
    rng = np.random.default_rng([seed, event_id])
    is_odd = is_open_data_detector(detector.volume_id)
    particles = generate_particles(n_particles, rng, ODD_BEAM_SIGMA_Z if is_odd else BEAM_SIGMA_Z)
    return event_of_particles(particles, event_id, detector, rng)


def event_of_particles(
    particles: Columns, event_id: int, detector: DetectorLayers, rng: np.random.Generator
) -> Event:
    """Simulates the event of `particles` (see `generate_particles`), and sets their `nhits`."""
    signal = particle_deposits(particles, detector, rng)
    noise = noise_deposits(signal, NOISE_SHARE, detector, rng)
    columns = zip(vars(signal).values(), vars(noise).values(), strict=True)
    deposits = Deposits(*(np.concatenate(pair) for pair in columns))
    hit, leading = merge_deposits(deposits, detector)
    lead = deposits.take(leading)
    is_noise = lead.particle == NO_PARTICLE
    particles["nhits"] = np.bincount(lead.particle[~is_noise], minlength=len(particles["q"]))
    hit_id = np.arange(1, len(lead) + 1)
    point = to_global(lead, *measure(deposits, hit, detector, rng), detector)
    hits: Columns = {
        "hit_id": hit_id,
        **dict(zip("xyz", point, strict=True)),
        "volume_id": detector.volume_id[lead.layer],
        "layer_id": detector.layer_id[lead.layer],
        "module_id": detector.module_id(lead.layer, lead.column, lead.row),
    }
    truth: Columns = {
        "hit_id": hit_id,
        "particle_id": np.where(is_noise, NOISE, particles["particle_id"][lead.particle]),
        **dict(zip(("tx", "ty", "tz"), to_global(lead, lead.u, lead.v, detector), strict=True)),
        "tpx": lead.px,
        "tpy": lead.py,
        "tpz": lead.pz,
        "weight": _weights(lead, particles),
    }
    cells = fired_cells(deposits, hit, detector)
    tables = (
        {name: _rounded(values) for name, values in table.items()}
        for table in (hits, cells, particles, truth)
    )
    return Event(event_name(event_id), *tables)


def _weights(lead: Deposits, particles: Columns) -> Float64:
    """Returns weights like TrackML's, [N], scaled to sum 1: 0.2 below 0.5 GeV, 1 above 3 GeV."""
    nhits = particles["nhits"].astype(np.int64)
    pt = np.hypot(particles["px"].astype(np.float64), particles["py"].astype(np.float64))
    counts = (lead.particle != NO_PARTICLE) & (nhits[lead.particle] >= MIN_WEIGHTED_HITS)
    weight: Float64 = counts * np.interp(pt[lead.particle], [0.5, 3.0], [0.2, 1.0])
    total = float(weight.sum())
    return weight / total if total else weight


def _rounded(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """Rounds a column of floats to DIGITS significant digits; returns other columns unchanged."""
    if column.dtype.kind != "f":
        return column
    values = column.astype(np.float64)
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), SMALLEST)))
    scale = 10.0 ** np.abs(DIGITS - 1 - magnitude)
    # Dividing by a power of ten is exact to the last bit, multiplying by its inverse is not.
    fine: Float64 = np.rint(values * scale) / scale
    return np.where(magnitude < DIGITS, fine, np.rint(values / scale) * scale)
