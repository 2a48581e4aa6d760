"""The deposits of particles and noise in the modules, before they are measured."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns
from bigtrk.events.geometry import DetectorLayers
from bigtrk.events.simulation.helix import helices
from bigtrk.events.simulation.propagation import MAX_SLOPE, Crossings, places, propagate

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

INEFFICIENCY = 0.02
# Chance to stop in a module (nuclear interactions); it gives TrackML's eight hits per particle.
STOPPED_PER_MODULE = 0.04
CHARGE_PER_MM = 1.5  # gives the 0.30 to 0.35 per pixel cluster of TrackML's cells
NO_PARTICLE = -1


@dataclass(frozen=True)
class Deposits:
    """D deposits, each field [D].

    particle: row of the particle table, -1 for noise. layer: row of the layer table. column, row:
    the module. u v (mm): from the module's centre, along phi (arc at the module's arc_radius) and
    along the row. slope_u slope_v: of the track to the normal. charge (arbitrary units).
    px py pz (GeV): true momentum.
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

    def take(self, rows: NDArray[np.generic]) -> "Deposits":
        """Returns the deposits of `rows` (indices or a mask)."""
        return Deposits(*(getattr(self, field.name)[rows] for field in fields(self)))


def concatenate(first: Deposits, second: Deposits) -> Deposits:
    """Appends the second table to the first."""
    pairs = ((getattr(first, f.name), getattr(second, f.name)) for f in fields(Deposits))
    return Deposits(*(np.concatenate(pair) for pair in pairs))


def particle_deposits(
    particles: Columns, layers: DetectorLayers, rng: np.random.Generator
) -> Deposits:
    """Simulates particles in a 2 T solenoid and the material of `layers`, for half a turn."""
    # From a stream of its own: what happens in the modules draws the same numbers without material.
    crossings = propagate(helices(particles), layers, rng.spawn(1)[0])
    deposits, inside = _in_modules(crossings, layers)
    deposits, angle = deposits.take(inside), crossings.angle[inside]
    deposits = deposits.take(_survives(deposits.particle, angle, rng))
    deposits = deposits.take(rng.random(len(deposits)) >= INEFFICIENCY)
    return _with_charge(deposits, deposits.charge * rng.gamma(9.0, 1 / 9.0, len(deposits)))


def noise_deposits(
    signal: Deposits, share: float, layers: DetectorLayers, rng: np.random.Generator
) -> Deposits:
    """Draws deposits without a particle, `share` of the sum, on layers as busy as the signal's."""
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


def _survives(particle: Int64, angle: Float64, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Says whether the particle still exists at each crossing."""
    crossings = rng.geometric(STOPPED_PER_MODULE, particle.max(initial=-1) + 1)
    alive: NDArray[np.bool_] = places(particle, angle) < crossings[particle]
    return alive


def _in_modules(crossings: Crossings, layers: DetectorLayers) -> tuple[Deposits, NDArray[np.bool_]]:
    """Returns crossings' deposits in the nearest column of their side, and if a module is there."""
    layer, x, y, pz = crossings.layer, crossings.x, crossings.y, crossings.pz
    px, py = crossings.px, crossings.py
    phi, radius = np.arctan2(y, x), np.hypot(x, y)
    barrel = layers.is_barrel[layer]
    along = layers.along(layer, x, y, crossings.z)
    column = _nearest_column(phi, crossings.side, layers.n_phi[layer])
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


def _nearest_column(phi: Float64, side: Int64, n_phi: Int64) -> Int64:
    """Returns the column of parity `side` whose centre is nearest to `phi`."""
    place = (phi + np.pi) / (2 * np.pi) * n_phi - 0.5
    column: Int64 = np.mod(2 * np.rint((place - side) / 2).astype(np.int64) + side, n_phi)
    return column


def _slope(along: Float64, normal: Float64) -> Float64:
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = along / normal
    return np.clip(np.nan_to_num(slope), -MAX_SLOPE, MAX_SLOPE)


def _with_charge(deposits: Deposits, charge: Float64) -> Deposits:
    values = {field.name: getattr(deposits, field.name) for field in fields(Deposits)}
    return Deposits(**(values | {"charge": charge}))
