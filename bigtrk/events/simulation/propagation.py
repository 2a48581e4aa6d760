"""The ways of particles through the detector: layer after layer, each of which deflects and slows.

Which surfaces a particle meets, and in which order, is read off its helix at the vertex; where it
meets them, off the helix on which the layers before have left it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.geometry import DetectorLayers
from bigtrk.events.simulation.helix import (
    HALF_TURN,
    Helices,
    continued,
    crossing_near,
    cylinder_crossings,
    disc_crossings,
    momentum,
    position,
    put,
    take,
)
from bigtrk.events.simulation.material import scattering_angle, slowed

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

MAX_SLOPE = 15.0  # of a track to a layer's normal: bounds its path in the layer and its clusters
# A surface that the helix at the vertex crosses further away than this from its layer is not met
# (mm). 99.9 % of crossings are within 61 mm of where that helix would have been.
NEAR = 100.0


@dataclass(frozen=True)
class Surfaces:
    """C surfaces of layers that particles meet, each field [C].

    particle: row of the particle table. layer: row of the layer table. side: 0 for the surface of
    its even columns, 1 for that of the odd ones. angle (rad): turned since the vertex.
    """

    particle: Int64
    layer: Int64
    side: Int64
    angle: Float64

    def take(self, rows: NDArray[np.generic]) -> Self:
        """Returns the surfaces of `rows` (indices or a mask)."""
        return type(self)(*(values[rows] for values in vars(self).values()))


@dataclass(frozen=True)
class Crossings(Surfaces):
    """The places at which C surfaces are met, x y z (mm) [C], with momentum px py pz (GeV) [C]."""

    x: Float64
    y: Float64
    z: Float64
    px: Float64
    py: Float64
    pz: Float64


def propagate(helix: Helices, layers: DetectorLayers, rng: np.random.Generator) -> Crossings:
    """Leads P particles through the layers and their material, for half a turn at most.

    Returns the crossings of surfaces within the extent of their layer. `rng` serves deflections
    alone; without material they are those of the helices, to the last bit.
    """
    ahead = _surfaces_ahead(helix, layers)
    # Drawn at once: which of them a surface gets does not hang on what happens before it.
    kicks = rng.normal(size=(2, len(ahead.particle)))
    tracks = _Tracks(helix)
    met = np.full((7, len(ahead.particle)), np.nan)
    for rows in _steps(ahead):
        here = tracks.meet(ahead.take(rows), layers)
        tracks.deflect(here, layers, kicks[:, rows])
        met[:, rows] = [here.angle, here.x, here.y, here.z, here.px, here.py, here.pz]
    every = Crossings(ahead.particle, ahead.layer, ahead.side, *met)
    return every.take(np.isfinite(every.angle))


class _Tracks:
    """The P particles on their way: the helix of each since its last deflection, NaN once it has
    stopped, and the angle turned before, [P] (rad).
    """

    def __init__(self, helix: Helices) -> None:
        self._helix = take(helix, np.arange(len(helix.pt)))
        self._turned = np.zeros(len(helix.pt))

    def meet(self, ahead: Surfaces, layers: DetectorLayers) -> Crossings:
        """Finds where particles, each once, meet the surfaces `ahead`; angle NaN: they miss it."""
        helix, turned = take(self._helix, ahead.particle), self._turned[ahead.particle]
        surface = layers.surface(ahead.layer, ahead.side)
        is_barrel = layers.is_barrel[ahead.layer]
        angle = crossing_near(helix, is_barrel, surface, ahead.angle - turned)
        place = position(helix, angle)
        there = (angle >= 0) & (turned + angle <= HALF_TURN)
        there &= layers.extends(ahead.layer, layers.along(ahead.layer, *place))
        total = np.where(there, turned + angle, np.nan)
        where = *place, *momentum(helix, angle)
        return Crossings(ahead.particle, ahead.layer, ahead.side, total, *where)

    def deflect(self, met: Crossings, layers: DetectorLayers, kicks: Float64) -> None:
        """Leads particles, each once, through the material that they have met.

        kicks [2, M]: deflections in two planes, in units of their rms angle.
        """
        thickness = _thickness(met, layers)
        through = thickness > 0
        met, thickness = met.take(through), thickness[through]
        total = np.sqrt(met.px**2 + met.py**2 + met.pz**2)
        across, along = scattering_angle(total, thickness) * kicks[:, through]
        angle = met.angle - self._turned[met.particle]
        helix, after = take(self._helix, met.particle), slowed(total, thickness)
        put(self._helix, met.particle, continued(helix, angle, across, along, after))
        self._turned[met.particle] = met.angle


def _thickness(met: Crossings, layers: DetectorLayers) -> Float64:
    """Returns the radiation lengths on the way through each layer, 0 where there are none.

    A layer's material lies on the surface of its even columns.
    """
    there = (met.side == 0) & np.isfinite(met.angle)
    outward = (met.px * met.x + met.py * met.y) / np.hypot(met.x, met.y)
    normal = np.abs(np.where(layers.is_barrel[met.layer], outward, met.pz))
    total = np.sqrt(met.px**2 + met.py**2 + met.pz**2)
    path = total / np.maximum(normal, total / MAX_SLOPE)
    return np.where(there, layers.material[met.layer] * path, 0.0)


def _surfaces_ahead(helix: Helices, layers: DetectorLayers) -> Surfaces:
    """Finds the surfaces that helices cross in or near their layer, without regard to material."""
    sides = [_crossings(helix, layers, side) for side in (0, 1)]
    particle, layer, side, angle = (np.concatenate(parts) for parts in zip(*sides, strict=True))
    along = layers.along(layer, *position(take(helix, particle), angle))
    near = layers.extends(layer, along, beyond=NEAR)
    return Surfaces(particle, layer, side, angle).take(near)


def _crossings(
    helix: Helices, layers: DetectorLayers, side: int
) -> tuple[Int64, Int64, Int64, Float64]:
    """Finds crossings of the layers' even or odd side: particle, layer, side and turning angle."""
    every = np.arange(len(layers))
    surface = layers.surface(every, np.full(len(layers), side))
    angle = np.full((len(helix.pt), len(layers)), np.nan)
    barrel = layers.is_barrel
    angle[:, barrel] = cylinder_crossings(helix, surface[barrel])
    angle[:, ~barrel] = disc_crossings(helix, surface[~barrel])
    particle, layer = np.nonzero(np.isfinite(angle))
    return particle, layer, np.full(len(particle), side), angle[particle, layer]


def places(particle: Int64, angle: Float64) -> Int64:
    """Returns how many crossings of the same particle come before each, [C]."""
    order = np.lexsort((angle, particle))
    ordered = particle[order]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return place


def _steps(ahead: Surfaces) -> Iterator[NDArray[np.intp]]:
    """Yields the rows of each particle's first surface, of each one's second, and so on."""
    place = places(ahead.particle, ahead.angle)
    yield from np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
