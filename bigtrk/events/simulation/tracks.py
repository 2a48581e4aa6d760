"""Paths of particles through the detector: helices, deflected and slowed in material of layers.

A particle of charge q turns by the angle a (rad, 0 at its vertex) along
    x = cx - q R sin(phi0 - q a),  y = cy + q R cos(phi0 - q a),  z = vz + R a cot(theta)
with R = pT / (0.3 B): PDG review, "Tracking detectors", motion in a uniform field along +z.

Formulas of material are those of the PDG review "Passage of particles through matter" (R. L.
Workman et al., Prog. Theor. Exp. Phys. 2022, 083C01, chapter 34), for pions, with all material
taken for silicon. Which surfaces a particle meets, and in which order, is read off its helix at the
vertex; where it meets them, off the helix on which the layers before have left it.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Columns
from bigtrk.events.geometry import DetectorLayers

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

PION_MASS = 0.13957039  # GeV
RADIATION_MASS = 21.82  # g/cm^2, of silicon
Z_OVER_A = 0.49848  # mol/g, of silicon
EXCITATION = 173e-9  # GeV, silicon's mean energy
ELECTRON_MASS = 0.51099895e-3  # GeV
BETHE = 0.307075e-3  # GeV cm^2/mol: 4 pi N_A r_e^2 m_e c^2
FIELD = 2.0  # T
GEV_PER_TESLA_MM = 0.299792458e-3
MAX_SLOPE = 15.0  # of a track to a layer's normal: bounds its path in the layer and its clusters
# Surfaces that the undeflected helix crosses farther than this from their layer are ignored (mm).
# 99.9 % of crossings are within 61 mm of the undeflected helix.
NEAR = 100.0


def scattering_angle(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the rms angle in a plane by which material deflects pions, [M] (rad).

    momentum [M] (GeV), thickness [M] (radiation lengths, more than 0). Highland's formula in the
    form of Lynch and Dahl, equation 34.16.
    """
    beta = momentum / np.hypot(momentum, PION_MASS)
    logarithm = np.log(thickness / beta**2)
    angle: Float64 = 0.0136 / (beta * momentum) * np.sqrt(thickness) * (1 + 0.038 * logarithm)
    return angle


def energy_loss(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the mean energy that pions lose by ionisation, [M] (GeV).

    momentum [M] (GeV), thickness [M] (radiation lengths). Bethe's equation, 34.5, for the momentum
    before the material. It leaves out the density effect, which would subtract 4 % at 1 GeV.
    """
    energy = np.hypot(momentum, PION_MASS)
    beta_gamma2 = (momentum / PION_MASS) ** 2
    beta2 = (momentum / energy) ** 2
    ratio = ELECTRON_MASS / PION_MASS
    most = 2 * ELECTRON_MASS * beta_gamma2 / (1 + 2 * energy / PION_MASS * ratio + ratio**2)
    logarithm = np.log(2 * ELECTRON_MASS * beta_gamma2 * most / EXCITATION**2) / 2
    loss: Float64 = BETHE * Z_OVER_A / beta2 * (logarithm - beta2)
    return loss * thickness * RADIATION_MASS


def slowed(momentum: Float64, thickness: Float64) -> Float64:
    """Returns the momentum of pions after their mean energy loss, [M] (GeV); NaN if they stop."""
    energy = np.hypot(momentum, PION_MASS) - energy_loss(momentum, thickness)
    return np.sqrt(np.where(energy > PION_MASS, energy**2 - PION_MASS**2, np.nan))


class Table:
    """Base of dataclasses whose fields are columns of one table."""

    def take(self, rows: Any) -> Self:
        """Returns a table of the chosen rows, given as indices or a mask."""
        return type(self)(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class Helices(Table):
    """The helices of P particles: each field [P] float64.

    vx vy vz (mm): production vertex. phi0 (rad), pt (GeV), cot_theta: the direction and momentum at
    the vertex. charge: +1 or -1. radius, centre_x, centre_y (mm): of the circle in x and y.
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
    """Returns helices of particles (vx vy vz mm, px py pz GeV, q = +1 or -1) in `field` (T)."""
    vx, vy, vz, px, py, pz, charge = (
        particles[name].astype(np.float64) for name in ("vx", "vy", "vz", "px", "py", "pz", "q")
    )
    pt, phi0 = np.hypot(px, py), np.arctan2(py, px)
    radius = pt / (GEV_PER_TESLA_MM * field)
    return _with_centres(vx, vy, vz, phi0, pt, pz / pt, charge, radius)


def _with_centres(*columns: Float64) -> Helices:
    """Makes helices from all columns but the circle's centre, which it computes."""
    vx, vy, _, phi0, _, _, charge, radius = columns
    centre_x = vx + charge * radius * np.sin(phi0)
    centre_y = vy - charge * radius * np.cos(phi0)
    return Helices(*(*columns, centre_x, centre_y))


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
    """Returns each helix after its turn by `angle`, with a new direction and momentum.

    All [P]; angles in rad. across, along: deflections, towards increasing azimuth and, in the plane
    of direction and beam, towards increasing z. total: the new momentum (GeV).
    """
    x, y, z = position(helix, angle)
    sine = 1 / np.hypot(1.0, helix.cot_theta)
    sideways, upwards = np.tan(across), np.tan(along)
    ahead = sine * (1 - upwards * helix.cot_theta)
    transverse = np.hypot(ahead, sideways)
    phi = helix.phi0 - helix.charge * angle + np.arctan2(sideways, ahead)
    pt = total * transverse / np.sqrt(1 + sideways**2 + upwards**2)
    cot_theta = sine * (helix.cot_theta + upwards) / transverse
    return _with_centres(x, y, z, phi, pt, cot_theta, helix.charge, pt * helix.radius / helix.pt)


def cylinder_crossings(helix: Helices, radii: Float64) -> Float64:
    """Returns the angle at which each helix first crosses each cylinder, [P], [S] -> [P, S] (rad).

    NaN if it does not cross it within its first half turn. radii [S] (mm).
    """
    angle = np.minimum(*_cylinder_angles(helix.take(_AS_COLUMN), radii))
    return np.where(angle <= np.pi, angle, np.nan)


def disc_crossings(helix: Helices, z: Float64) -> Float64:
    """Returns the angle at which each helix crosses each plane z, [P], [S] -> [P, S] (rad).

    NaN if it does not cross it within its first half turn. z [S] (mm).
    """
    angle = _disc_angle(helix.take(_AS_COLUMN), z)
    return np.where((angle > 0) & (angle <= np.pi), angle, np.nan)


def crossing_near(
    helix: Helices, is_barrel: NDArray[np.bool_], surface: Float64, expected: Float64
) -> Float64:
    """Returns the angle at which each helix crosses the one surface given for it, [P] (rad).

    surface [P] (mm): radius of a cylinder or z of a disc. The crossing nearest to the angle
    `expected` [P] is taken; a negative angle lies behind, NaN means that there is none.
    """
    first, second = _cylinder_angles(helix, surface)
    first, second = (a - 2 * np.pi * np.rint((a - expected) / (2 * np.pi)) for a in (first, second))
    is_first = np.abs(first - expected) <= np.abs(second - expected)
    return np.where(is_barrel, np.where(is_first, first, second), _disc_angle(helix, surface))


_AS_COLUMN = (slice(None), None)  # [P] -> [P, 1]


def _cylinder_angles(helix: Helices, radii: Float64) -> tuple[Float64, Float64]:
    """Returns both angles, from 0 to a turn, at which helices cross cylinders; NaN if they miss."""
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


@dataclass(frozen=True)
class Surfaces(Table):
    """C surfaces of layers that particles meet, each field [C].

    particle: row of the particle table. layer: row of the layer table. side: 0 for the surface of
    the layer's even columns, 1 for the odd ones. angle (rad): by which the helix has turned.
    """

    particle: Int64
    layer: Int64
    side: Int64
    angle: Float64


@dataclass(frozen=True)
class Crossings(Surfaces):
    """C crossings of surfaces: the place x y z (mm) [C] and the momentum px py pz (GeV) [C]."""

    x: Float64
    y: Float64
    z: Float64
    px: Float64
    py: Float64
    pz: Float64


def propagate(helix: Helices, layers: DetectorLayers, rng: np.random.Generator) -> Crossings:
    """Propagates P particles through the layers and their material, for half a turn at most.

    Returns the crossings of surfaces within the extent of their layer. `rng` is used for
    deflections only; without material the crossings are those of the helices, to the last bit.
    """
    ahead = _surfaces_ahead(helix, layers)
    # Drawn at once, so that a surface's deflection does not depend on earlier crossings.
    kicks = rng.normal(size=(2, len(ahead.particle)))
    # Each particle's helix since its last deflection, NaN once it stops, and the angle before it.
    now, turned = helix.take(np.arange(len(helix.pt))), np.zeros(len(helix.pt))
    met = np.full((7, len(ahead.particle)), np.nan)
    # Each particle's first surface, then each one's second, and so on.
    place = places(ahead.particle, ahead.angle)
    ends = np.cumsum(np.bincount(place))[:-1]
    for rows in np.split(np.argsort(place, kind="stable"), ends):
        here = _meet(now, turned, ahead.take(rows), layers)
        _deflect(now, turned, here, layers, kicks[:, rows])
        met[:, rows] = [here.angle, here.x, here.y, here.z, here.px, here.py, here.pz]
    every = Crossings(ahead.particle, ahead.layer, ahead.side, *met)
    return every.take(np.isfinite(every.angle))


def _meet(now: Helices, turned: Float64, ahead: Surfaces, layers: DetectorLayers) -> Crossings:
    """Computes where particles, each once, cross the surfaces `ahead`; angle NaN if they miss."""
    helix, before = now.take(ahead.particle), turned[ahead.particle]
    surface = layers.surface(ahead.layer, ahead.side)
    is_barrel = layers.is_barrel[ahead.layer]
    angle = crossing_near(helix, is_barrel, surface, ahead.angle - before)
    place = position(helix, angle)
    there = (angle >= 0) & (before + angle <= np.pi)
    there &= layers.extends(ahead.layer, layers.along(ahead.layer, *place))
    total = np.where(there, before + angle, np.nan)
    where = *place, *momentum(helix, angle)
    return Crossings(ahead.particle, ahead.layer, ahead.side, total, *where)


def _deflect(
    now: Helices, turned: Float64, met: Crossings, layers: DetectorLayers, kicks: Float64
) -> None:
    """Deflects and slows particles, each once, in material they met; changes `now` and `turned`.

    kicks [2, M]: deflections in two planes, in units of their rms angle.
    """
    outward = (met.px * met.x + met.py * met.y) / np.hypot(met.x, met.y)
    normal = np.abs(np.where(layers.is_barrel[met.layer], outward, met.pz))
    total = np.sqrt(met.px**2 + met.py**2 + met.pz**2)
    thickness = layers.material[met.layer] * (total / np.maximum(normal, total / MAX_SLOPE))
    # A layer's material, in radiation lengths, lies on the surface of its even columns.
    through = (met.side == 0) & np.isfinite(met.angle) & (thickness > 0)
    met, thickness, total = met.take(through), thickness[through], total[through]
    across, along = scattering_angle(total, thickness) * kicks[:, through]
    angle, after = met.angle - turned[met.particle], slowed(total, thickness)
    new = continued(now.take(met.particle), angle, across, along, after)
    for column, values in zip(vars(now).values(), vars(new).values(), strict=True):
        column[met.particle] = values
    turned[met.particle] = met.angle


def _surfaces_ahead(helix: Helices, layers: DetectorLayers) -> Surfaces:
    """Finds the surfaces that helices would cross in or near their layers without material."""
    sides, barrel = [], layers.is_barrel
    for side in (0, 1):
        surface = layers.surface(np.arange(len(layers)), np.full(len(layers), side))
        angles = np.full((len(helix.pt), len(layers)), np.nan)
        angles[:, barrel] = cylinder_crossings(helix, surface[barrel])
        angles[:, ~barrel] = disc_crossings(helix, surface[~barrel])
        crossed = np.nonzero(np.isfinite(angles))
        sides.append((*crossed, np.full(len(crossed[0]), side), angles[crossed]))
    ahead = Surfaces(*(np.concatenate(parts) for parts in zip(*sides, strict=True)))
    along = layers.along(ahead.layer, *position(helix.take(ahead.particle), ahead.angle))
    return ahead.take(layers.extends(ahead.layer, along, beyond=NEAR))


def places(particle: Int64, angle: Float64) -> Int64:
    """Numbers the crossings of each particle by angle, from 0: particle, angle [C] -> [C]."""
    order = np.lexsort((angle, particle))
    ordered = particle[order]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return place
