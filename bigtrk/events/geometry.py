"""The detector as layers: barrel cylinders and end-cap discs, each tiled with modules.

A layer's modules form `n_rows` rows (along z in the barrel, along r on a disc) of `n_phi`
columns. Even columns lie `gap` outside the layer's position, odd ones `gap` inside, and
neighbours overlap by OVERLAP of their pitch, so that a track can leave two hits on one layer.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.simulation.material import layer_thickness

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# 20 to 28 % of the particles that cross a TrackML layer leave two hits or more on it.
OVERLAP = 0.2


@dataclass(frozen=True)
class DetectorLayers:
    """A table of L layers; lengths in mm.

    volume_id layer_id [L] int64, is_barrel [L] bool. position: radius of a cylinder, z of a disc.
    low high: extent along z of a cylinder, along r of a disc. n_phi n_rows [L] int64: columns
    and rows of modules. gap thickness pitch_u (along phi) pitch_v (along the rows) [L]. material
    [L]: of the whole layer, met at right angles, in radiation lengths.
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
        """Returns the length of a module along its row's axis, [L] (mm)."""
        return (self.high - self.low) / self.n_rows

    @property
    def half_angle(self) -> Float64:
        """Returns half of the angle a module covers, overlap included, [L] (rad)."""
        return np.pi / self.n_phi * (1 + OVERLAP)

    def surface(self, layer: Int64, column: Int64) -> Float64:
        """Returns radius or z of the modules in `column` of `layer`: [M], [M] -> [M] (mm)."""
        side = 1.0 - 2.0 * (column % 2)
        return self.position[layer] + side * self.gap[layer]

    def column_phi(self, layer: Int64, column: Int64) -> Float64:
        """Returns the azimuth of the centre of a column: [M], [M] -> [M] (rad)."""
        return (column + 0.5) * 2 * np.pi / self.n_phi[layer] - np.pi

    def row_centre(self, layer: Int64, row: Int64) -> Float64:
        """Returns z (barrel) or r (disc) of the centre of a row: [M], [M] -> [M] (mm)."""
        return self.low[layer] + (row + 0.5) * self.row_length[layer]

    def along(self, layer: Int64, x: Float64, y: Float64, z: Float64) -> Float64:
        """Returns z (barrel) or r (disc) of points on layers: each [M] -> [M] (mm)."""
        return np.where(self.is_barrel[layer], z, np.hypot(x, y))

    def extends(self, layer: Int64, along: Float64, beyond: float = 0.0) -> NDArray[np.bool_]:
        """Says whether a layer reaches to z or r `along` (mm), or to `beyond` mm from it: [M]."""
        within: NDArray[np.bool_] = along >= self.low[layer] - beyond
        return within & (along < self.high[layer] + beyond)

    def arc_radius(self, layer: Int64, column: Int64, row: Int64) -> Float64:
        """Returns the radius at which a module's u is measured: its cylinder's or, on a disc, that
        of its row's centre.

        [M], [M], [M] -> [M] (mm). Strips of a disc are radial: one strip, one azimuth.
        """
        centre = self.row_centre(layer, row)
        return np.where(self.is_barrel[layer], self.surface(layer, column), centre)


class _Volume(NamedTuple):
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


_PIXEL_DISCS = (600.0, 700.0, 820.0, 960.0, 1100.0, 1300.0, 1500.0)
_STRIP_DISCS = (1220.0, 1500.0, 1800.0, 2150.0, 2550.0, 2950.0)


def _end_caps(left: int, right: _Volume) -> tuple[_Volume, _Volume]:
    """Returns both end caps; TrackML numbers discs by ascending z on either side."""
    mirrored = tuple(-z for z in reversed(right.positions))
    return right._replace(volume_id=left, positions=mirrored), right


def _barrel(volume_id: int, radii: tuple[float, ...], half_length: float, *rest: Any) -> _Volume:
    return _Volume(volume_id, True, radii, -half_length, half_length, *rest)


# Read off the data set's detectors.csv (layers_from_detectors gives the same table).
_PIXEL_SENSOR = (0.15, 0.05, 0.05625)
_SHORT_STRIPS = (0.25, 0.08, 1.2)
_VOLUMES = (
    _barrel(8, (32, 72, 116, 172), 491, (16, 32, 52, 78), 14, 0.25, *_PIXEL_SENSOR),
    _barrel(13, (260, 360, 500, 660), 1084, (40, 56, 78, 102), 21, 1.5, *_SHORT_STRIPS),
    _barrel(17, (820, 1020), 1084, (120, 152), 21, 1.5, 0.35, 0.12, 10.8),
    *_end_caps(7, _Volume(9, False, _PIXEL_DISCS, 30, 176, (54,) * 7, 2, 2.5, *_PIXEL_SENSOR)),
    *_end_caps(12, _Volume(14, False, _STRIP_DISCS, 240, 700, (56,) * 6, 3, 4.5, *_SHORT_STRIPS)),
    *_end_caps(
        16, _Volume(18, False, _STRIP_DISCS, 750, 1020, (48,) * 6, 2, 5.5, 0.35, 0.12, 10.4)
    ),
)


def _layers_of(volume: _Volume) -> list[tuple[float, ...]]:
    # TrackML numbers the layers of a volume 2, 4, 6, ...
    volume_id, is_barrel, positions, low, high, n_phi, *sizes = volume
    sizes.append(layer_thickness(volume_id, volume.thickness))
    return [
        (volume_id, 2 * place + 2, is_barrel, positions[place], low, high, n_phi[place], *sizes)
        for place in range(len(positions))
    ]


def layers_from_rows(rows: list[tuple[float, ...]]) -> DetectorLayers:
    """Makes a table from one tuple per layer, in the order of DetectorLayers' fields."""
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    integers, floats = np.int64, np.float64
    kinds = (
        integers,
        integers,
        np.bool_,
        floats,
        floats,
        floats,
        integers,
        integers,
        *[floats] * 5,
    )
    return DetectorLayers(*(c.astype(kind) for c, kind in zip(columns, kinds, strict=True)))


TRACKML_LAYERS = layers_from_rows(
    [row for volume in sorted(_VOLUMES) for row in _layers_of(volume)]
)
