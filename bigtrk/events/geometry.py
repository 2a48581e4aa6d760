"""Detectors as layers of barrel cylinders and end-cap discs, each tiled with modules: TrackML's,
and the Open Data Detector.

A layer's modules form `n_rows` rows (along z in the barrel, along r on a disc) of `n_phi`
columns. Even columns lie `gap` outside the layer's position, odd ones `gap` inside, and
neighbours overlap by OVERLAP of their pitch, so that a track can leave two hits on one layer.
A layer of double-sided modules is two rows of the table, one per sensor.

ColliderML's events were simulated in the Open Data Detector. How many modules a layer has comes
from its description (DOI 10.5281/zenodo.4674401), and the sizes of cells from ColliderML's
digitisation (OpenDataDetector/ColliderML-Production, odd-full-geo-digi-config.json). The positions
of modules, the lengths of strips, and the ids of volumes and layers are read off the production's
hits. The detector is simplified: modules are parts of cylinders and discs, without tilt and stereo
angle; those of a barrel lie at their mean radius.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# 20 to 28 % of the particles that cross a TrackML layer leave two hits or more on it.
OVERLAP = 0.2

# Support, cooling and cables of a layer, by volume_id, as mm of silicon: what the generic
# detector of ACTS has, of which TrackML's is one (Examples/Detectors/GenericDetector). Its beam
# pipe (0.2 % of a radiation length) and pixel support tube (0.5 %) are left out.
STRUCTURE = {7: 1.5, 8: 1.5, 9: 1.5, 12: 2.5, 13: 2.0, 14: 2.5, 16: 3.5, 17: 2.5, 18: 3.5}
STRUCTURE_PER_SENSOR = 10.0  # other volumes: ratio of structure to the sensor's thickness
RADIATION_LENGTH = 93.7  # mm, of silicon


def layer_thickness(
    volume_id: int, sensor: float, structure: Mapping[int, float] = STRUCTURE
) -> float:
    """Returns a layer's material at right angles, in radiation lengths. sensor: thickness in mm."""
    return (sensor + structure.get(volume_id, STRUCTURE_PER_SENSOR * sensor)) / RADIATION_LENGTH


@dataclass(frozen=True)
class DetectorLayers:
    """A table of L detector layers, a row per sensor layer; lengths in mm.

    volume_id layer_id [L] int64, is_barrel [L] bool. position: radius of a cylinder, z of a disc.
    low high: range of z of a cylinder, of r of a disc. n_phi n_rows [L] int64: number of columns
    and rows of modules. gap: distance of columns from `position`. thickness: of the sensor. pitch_u
    pitch_v: along phi, along the rows. material [L]: radiation lengths at right angles.
    """

    volume_id: Int64
    layer_id: Int64
    is_barrel: NDArray[np.bool_]
    position: Float64
    low: Float64
    high: Float64
    n_phi: Int64
    n_rows: Int64
    gap: Float64
    thickness: Float64
    pitch_u: Float64
    pitch_v: Float64
    material: Float64

    def __len__(self) -> int:
        return len(self.volume_id)

    @property
    def row_length(self) -> Float64:
        """Returns each module's length in z (barrel) or r (disc), [L] (mm)."""
        return (self.high - self.low) / self.n_rows

    @property
    def half_angle(self) -> Float64:
        """Returns half of the azimuth that a module covers, overlap included, [L] (rad)."""
        return np.pi / self.n_phi * (1 + OVERLAP)

    @property
    def modules_before(self) -> Int64:
        """Returns how many modules of the same layer earlier rows of the table hold, [L]: 0, or the
        modules of the other sensor if modules are double-sided.
        """
        counts = self.n_phi * self.n_rows
        same = (self.volume_id[:, None] == self.volume_id) & (
            self.layer_id[:, None] == self.layer_id
        )
        before: Int64 = (np.tril(same, -1) * counts).sum(axis=1)
        return before

    def module_id(self, layer: Int64, column: Int64, row: Int64) -> Int64:
        """Returns module ids, which count from 1 in each layer: layer, column, row [M] -> [M]."""
        return 1 + self.modules_before[layer] + row * self.n_phi[layer] + column

    def surface(self, layer: Int64, column: Int64) -> Float64:
        """Returns the radius (barrel) or z (disc) of a column's modules: [M], [M] -> [M] (mm)."""
        side = 1.0 - 2.0 * (column % 2)
        return self.position[layer] + side * self.gap[layer]

    def column_phi(self, layer: Int64, column: Int64) -> Float64:
        """Returns the azimuth of a column's centre: [M], [M] -> [M] (rad)."""
        return (column + 0.5) * 2 * np.pi / self.n_phi[layer] - np.pi

    def row_centre(self, layer: Int64, row: Int64) -> Float64:
        """Returns z (barrel) or r (disc) of the centre of a modules' row: [M], [M] -> [M] (mm)."""
        return self.low[layer] + (row + 0.5) * self.row_length[layer]

    def along(self, layer: Int64, x: Float64, y: Float64, z: Float64) -> Float64:
        """Returns z (barrel layers) or r (discs) of points x, y, z: each [M] -> [M] (mm)."""
        return np.where(self.is_barrel[layer], z, np.hypot(x, y))

    def extends(self, layer: Int64, along: Float64, beyond: float = 0.0) -> NDArray[np.bool_]:
        """True where z or r `along` (mm) is in the layer, or at most `beyond` mm outside: [M]."""
        within: NDArray[np.bool_] = along >= self.low[layer] - beyond
        return within & (along < self.high[layer] + beyond)

    def arc_radius(self, layer: Int64, column: Int64, row: Int64) -> Float64:
        """Returns the radius of the arc along which a module's coordinate u is measured: the radius
        of its cylinder or, on a disc, of the centre of its row.

        [M], [M], [M] -> [M] (mm). Strips of a disc are radial: one strip, one azimuth.
        """
        centre = self.row_centre(layer, row)
        return np.where(self.is_barrel[layer], self.surface(layer, column), centre)


class Volume(NamedTuple):
    """The layers of one volume, or one ring of modules of each. Layer ids are `first`, `first` + 2
    ... as in ACTS. Units are as in DetectorLayers.

    positions, n_phi: one per layer. low, high and the fields after n_phi: the same for all layers.
    sensors (mm): the places of a module's sensors, relative to the layer's position.
    """

    volume_id: int
    is_barrel: bool
    positions: tuple[float, ...]
    low: float
    high: float
    n_phi: tuple[int, ...]
    n_rows: int
    gap: float
    thickness: float
    pitch_u: float
    pitch_v: float
    sensors: tuple[float, ...] = (0.0,)
    first: int = 2


def end_caps(left: int, right: Volume, first: int = 2) -> tuple[Volume, Volume]:
    """Returns both end caps: `right`, as given, and its mirror image at negative z, as volume
    `left` with layer ids from `first` on. In both, discs are numbered by ascending z.
    """
    mirrored = tuple(-z for z in reversed(right.positions))
    return right._replace(volume_id=left, positions=mirrored, first=first), right


def barrel(volume_id: int, radii: tuple[float, ...], half_length: float, *rest: Any) -> Volume:
    """Returns a barrel volume, z from -`half_length` to `half_length`. rest: Volume's n_phi etc."""
    return Volume(volume_id, True, radii, -half_length, half_length, *rest)


def layers_of(
    volumes: Iterable[Volume], structure: Mapping[int, float] = STRUCTURE
) -> DetectorLayers:
    """Builds the table of all layers of `volumes`, sorted by volume, then layer, then sensor.

    structure: by volume_id, each sensor's share of supports, cables and cooling, as mm of silicon.
    """
    rows: list[tuple[float, ...]] = []
    for volume in volumes:
        volume_id, is_barrel, positions, low, high, n_phi, *sizes, sensors, first = volume
        sizes.append(layer_thickness(volume_id, volume.thickness, structure))
        rows += [
            (volume_id, first + 2 * i, is_barrel, position + sensor, low, high, n_phi[i], *sizes)
            for i, position in enumerate(positions)
            for sensor in sensors
        ]
    return layers_from_rows(sorted(rows))


def layers_from_rows(rows: list[tuple[float, ...]]) -> DetectorLayers:
    """Builds a layer table from one tuple per layer, with values in the order of its fields."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    kinds = {0: np.int64, 1: np.int64, 2: np.bool_, 6: np.int64, 7: np.int64}
    return DetectorLayers(*(c.astype(kinds.get(i, np.float64)) for i, c in enumerate(columns)))


_PIXEL_DISCS = (600.0, 700.0, 820.0, 960.0, 1100.0, 1300.0, 1500.0)
_STRIP_DISCS = (1220.0, 1500.0, 1800.0, 2150.0, 2550.0, 2950.0)
# Read off the data set's detectors.csv (layers_from_detectors gives the same table).
_PIXEL_SENSOR = (0.15, 0.05, 0.05625)
_SHORT_STRIPS = (0.25, 0.08, 1.2)
TRACKML_LAYERS = layers_of(
    (
        barrel(8, (32, 72, 116, 172), 491, (16, 32, 52, 78), 14, 0.25, *_PIXEL_SENSOR),
        barrel(13, (260, 360, 500, 660), 1084, (40, 56, 78, 102), 21, 1.5, *_SHORT_STRIPS),
        barrel(17, (820, 1020), 1084, (120, 152), 21, 1.5, 0.35, 0.12, 10.8),
        *end_caps(7, Volume(9, False, _PIXEL_DISCS, 30, 176, (54,) * 7, 2, 2.5, *_PIXEL_SENSOR)),
        *end_caps(12, Volume(14, False, _STRIP_DISCS, 240, 700, (56,) * 6, 3, 4.5, *_SHORT_STRIPS)),
        *end_caps(
            16, Volume(18, False, _STRIP_DISCS, 750, 1020, (48,) * 6, 2, 5.5, 0.35, 0.12, 10.4)
        ),
    )
)


# Pixels, short and long strips, each the end cap at negative z, the barrel, the other end cap.
VOLUMES: Final = (16, 17, 18, 23, 24, 25, 28, 29, 30)
# TrackML has volumes 16, 17 and 18, too.
_ITS_OWN = VOLUMES[3:]

# ColliderML's beam spot, from the same repository's configs_production (mm); ten times TrackML's.
ODD_BEAM_SIGMA_Z: Final = 55.5
# T; by the bending of the production's particles, whose momenta are known.
ODD_FIELD: Final = 3.0
# Supports, cooling, boards and cables per sensor, as mm of silicon: summed over the shapes
# of the description, spread over the layer. The beam pipe and the pixels' support tube are left
# out, as for TrackML's detector.
ODD_STRUCTURE: Final = {
    **dict.fromkeys((16, 18), 1.0),
    17: 1.1,
    **dict.fromkeys((23, 25), 0.8),
    24: 1.6,
    **dict.fromkeys((28, 30), 0.9),
    29: 1.2,
}

_ODD_PIXEL_DISCS = (620.0, 720.0, 840.0, 980.0, 1120.0, 1320.0, 1520.0)
_SHORT_DISCS = (1300.0, 1550.0, 1850.0, 2200.0, 2550.0, 2950.0)
_LONG_DISCS = (1300.0, 1600.0, 1900.0, 2250.0, 2600.0, 3000.0)
# Thickness, pitch along phi, and along the row (a long strip is as long as its module); mm.
_ODD_PIXELS = (0.125, 0.05, 0.05)
_ODD_SHORT_STRIPS = (0.2, 0.08, 0.4)
_LONG_STRIPS = (0.25, 0.125)
# Real barrel modules are tilted by 0.12 (pixels) and 0.15 rad; here they are staggered so that
# neighbours are as far apart where they overlap. Long strips are double-sided.
_BARRELS = (
    barrel(17, (32.6, 68.4, 114.3, 170.3), 507.25, (16, 32, 52, 78), 14, 0.8, *_ODD_PIXELS),
    barrel(
        24, (260.3, 360.2, 500.2, 660.2), 1139.25, (40, 56, 78, 102), 21, 3.0, *_ODD_SHORT_STRIPS
    ),
    barrel(29, (820.4, 1020.6), 1139.25, (60, 80), 21, 6.0, *_LONG_STRIPS, 108.5, (-3.3, 3.3)),
)

# Rings of end-cap modules: id of the layer of least z at negative z, volume at positive z, z of
# the discs, offset in z from them, least and largest r, number of modules (lengths in mm).
_RINGS: tuple[tuple[Any, ...], ...] = (
    (4, 18, _ODD_PIXEL_DISCS, -3.8, 42, 110, 24, 0.6, *_ODD_PIXELS),
    (4, 18, _ODD_PIXEL_DISCS, 3.2, 105.5, 173.5, 36, 0.6, *_ODD_PIXELS),
    (2, 25, _SHORT_DISCS, -5, 240, 396, 42, 2.5, *_ODD_SHORT_STRIPS),
    (2, 25, _SHORT_DISCS, 5, 392, 548, 42, 2.5, *_ODD_SHORT_STRIPS),
    (2, 25, _SHORT_DISCS, -5, 544, 700, 42, 2.5, *_ODD_SHORT_STRIPS),
    (2, 30, _LONG_DISCS, -15, 742, 898, 48, 8, *_LONG_STRIPS, 156, (-2.5, 2.5)),
    (2, 30, _LONG_DISCS, 15, 912, 1068, 48, 8, *_LONG_STRIPS, 156, (-2.5, 2.5)),
)


def _ring(
    first: int, volume_id: int, discs: tuple[float, ...], behind: float, *rest: Any
) -> tuple[Volume, Volume]:
    """Returns one ring of modules of every end-cap disc, at negative z and at positive z."""
    low, high, n_phi, *others = rest
    positions, columns = tuple(z + behind for z in discs), (n_phi,) * len(discs)
    ring = Volume(volume_id, False, positions, low, high, columns, 1, *others)
    return end_caps(volume_id - 2, ring, first)


_END_CAPS = tuple(volume for ring in _RINGS for volume in _ring(*ring))
ODD_LAYERS = layers_of((*_BARRELS, *_END_CAPS), ODD_STRUCTURE)


def is_open_data_detector(volume_id: NDArray[np.int64]) -> bool:
    """True if hits or modules in the volumes [N] belong to the Open Data Detector: it has all of
    these volumes, and TrackML's detector lacks at least one.
    """
    volumes = np.unique(volume_id)
    known = np.isin(volumes, VOLUMES).all()
    return bool(known and np.isin(volumes, _ITS_OWN).any())
