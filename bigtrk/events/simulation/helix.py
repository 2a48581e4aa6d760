"""Helices in a solenoid: where charged particles cross cylinders and discs.

A particle of charge q turns by the angle a (rad, 0 at its vertex) along
    x = cx - q R sin(phi0 - q a),  y = cy + q R cos(phi0 - q a),  z = vz + R a cot(theta)
with R = pT / (0.3 B): PDG review, "Tracking detectors", motion in a uniform field along +z.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns

Float64 = NDArray[np.float64]

FIELD = 2.0  # T
GEV_PER_TESLA_MM = 0.299792458e-3
HALF_TURN = np.pi


@dataclass(frozen=True)
class Helices:
    """The helices of P particles: each field [P] float64.

    vx vy vz (mm): production vertex. phi0 (rad), pt (GeV), cot_theta: direction there.
    charge: +1 or -1. radius (mm) and centre_x, centre_y (mm) of the turning circle.
    """

    vx: Float64
    vy: Float64
    vz: Float64
    phi0: Float64
    pt: Float64
    cot_theta: Float64
    charge: Float64
    radius: Float64
    centre_x: Float64
    centre_y: Float64


def helices(particles: Columns, field: float = FIELD) -> Helices:
    """Computes the helices of particles (vx vy vz mm, px py pz GeV, q = +1 or -1), field in T."""
    vx, vy, vz, px, py, pz, charge = (
        particles[name].astype(np.float64) for name in ("vx", "vy", "vz", "px", "py", "pz", "q")
    )
    pt, phi0 = np.hypot(px, py), np.arctan2(py, px)
    radius = pt / (GEV_PER_TESLA_MM * field)
    return _from(vx, vy, vz, phi0, pt, pz / pt, charge, radius)


def _from(
    vx: Float64,
    vy: Float64,
    vz: Float64,
    phi0: Float64,
    pt: Float64,
    cot_theta: Float64,
    charge: Float64,
    radius: Float64,
) -> Helices:
    centre_x = vx + charge * radius * np.sin(phi0)
    centre_y = vy - charge * radius * np.cos(phi0)
    return Helices(vx, vy, vz, phi0, pt, cot_theta, charge, radius, centre_x, centre_y)


def take(helix: Helices, rows: NDArray[np.int64]) -> Helices:
    """Returns the helices of `rows`: [P] fields -> [M] fields."""
    return Helices(*(values[rows] for values in vars(helix).values()))


def put(helix: Helices, rows: NDArray[np.int64], others: Helices) -> None:
    """Writes the helices `others`, [M], into `rows` of `helix`."""
    for mine, new in zip(vars(helix).values(), vars(others).values(), strict=True):
        mine[rows] = new


def position(helix: Helices, angle: Float64) -> tuple[Float64, Float64, Float64]:
    """Returns x, y, z (mm) of each helix after turning by its `angle`: [P] -> 3 x [P]."""
    phi = helix.phi0 - helix.charge * angle
    x = helix.centre_x - helix.charge * helix.radius * np.sin(phi)
    y = helix.centre_y + helix.charge * helix.radius * np.cos(phi)
    return x, y, helix.vz + helix.radius * angle * helix.cot_theta


def momentum(helix: Helices, angle: Float64) -> tuple[Float64, Float64, Float64]:
    """Returns px, py, pz (GeV) of each helix after turning by its `angle`: [P] -> 3 x [P]."""
    phi = helix.phi0 - helix.charge * angle
    return helix.pt * np.cos(phi), helix.pt * np.sin(phi), helix.pt * helix.cot_theta


def continued(
    helix: Helices, angle: Float64, across: Float64, along: Float64, total: Float64
) -> Helices:
    """Returns the helices that go on after turning by `angle`, deflected, with another momentum.

    All [P]. across, along (rad): deflection in the planes of the direction and of, in turn, the
    azimuth's increase and the direction's own plane with the beam. total: momentum (GeV) there.
    """
    x, y, z = position(helix, angle)
    sine = 1 / np.hypot(1.0, helix.cot_theta)
    sideways, upwards = np.tan(across), np.tan(along)
    ahead = sine * (1 - upwards * helix.cot_theta)
    transverse = np.hypot(ahead, sideways)
    phi = helix.phi0 - helix.charge * angle + np.arctan2(sideways, ahead)
    pt = total * transverse / np.sqrt(1 + sideways**2 + upwards**2)
    cot_theta = sine * (helix.cot_theta + upwards) / transverse
    return _from(x, y, z, phi, pt, cot_theta, helix.charge, pt * helix.radius / helix.pt)


def cylinder_crossings(helix: Helices, radii: Float64) -> Float64:
    """Returns the angle at which each helix first crosses each cylinder, [P], [S] -> [P, S] (rad).

    NaN where it does not within its first half turn.
    """
    angle = np.minimum(*_cylinder_angles(_column(helix), radii))
    return np.where(angle <= HALF_TURN, angle, np.nan)


def disc_crossings(helix: Helices, z: Float64) -> Float64:
    """Returns the angle at which each helix crosses each plane z, [P], [S] -> [P, S] (rad).

    NaN where it does not within its first half turn.
    """
    angle = _disc_angle(_column(helix), z)
    return np.where((angle > 0) & (angle <= HALF_TURN), angle, np.nan)


def crossing_near(
    helix: Helices, is_barrel: NDArray[np.bool_], surface: Float64, expected: Float64
) -> Float64:
    """Returns the angle at which each helix crosses its own surface, [P] (rad).

    surface [P] (mm): radius of a cylinder or z of a disc. Of its crossings the one nearest to the
    angle `expected` [P]; negative where that lies behind, NaN where there is none.
    """
    first, second = _cylinder_angles(helix, surface)
    first, second = (a - 2 * np.pi * np.rint((a - expected) / (2 * np.pi)) for a in (first, second))
    is_first = np.abs(first - expected) <= np.abs(second - expected)
    return np.where(is_barrel, np.where(is_first, first, second), _disc_angle(helix, surface))


def _column(helix: Helices) -> Helices:
    """Gives the fields the shape [P, 1]."""
    return Helices(*(values[:, None] for values in vars(helix).values()))


def _cylinder_angles(helix: Helices, radii: Float64) -> tuple[Float64, Float64]:
    """Returns both angles, from 0 to a turn, at which helices cross cylinders; NaN for none."""
    centre = np.hypot(helix.centre_x, helix.centre_y)
    psi = np.arctan2(helix.centre_y, helix.centre_x)
    base = centre**2 + helix.radius**2
    scale = 2 * helix.charge * helix.radius * centre
    # rho^2 = centre^2 + R^2 + 2 q R centre sin(psi - phi), solved for phi.
    with np.errstate(invalid="ignore", divide="ignore"):
        arc = np.arcsin((radii**2 - base) / scale)
    offset = helix.charge * (helix.phi0 - psi)
    turn = helix.charge * arc
    return (
        np.mod(offset + turn, 2 * np.pi),
        np.mod(offset + helix.charge * np.pi - turn, 2 * np.pi),
    )


def _disc_angle(helix: Helices, z: Float64) -> Float64:
    with np.errstate(divide="ignore", invalid="ignore"):
        angle: Float64 = (z - helix.vz) / (helix.radius * helix.cot_theta)
    return angle
