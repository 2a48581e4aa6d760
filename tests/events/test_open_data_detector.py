"""The Open Data Detector's tracker: its layers, modules and cells are those of its description."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.detectors import (
    find_layers,
    write_detectors,
)
from bigtrk.events.geometry import ODD_LAYERS, TRACKML_LAYERS, VOLUMES, is_open_data_detector

# The description's xml: radius and number of staves of each cylinder; modules of a stave, their
# length, the gap between them, their width (mm).
BARRELS = {
    17: (((34, 16), (70, 32), (116, 52), (172, 78)), 14, 72.0, 0.5, 16.8),
    24: (((260, 40), (360, 56), (500, 78), (660, 102)), 21, 108.0, 0.5, 48.0),
    29: (((820, 60), (1020, 80)), 21, 108.0, 0.5, 96.0),
}
# Its discs: z, the radii of the rings' centres, half the length of their modules, modules in all.
END_CAPS = {
    18: ((620, 720, 840, 980, 1120, 1320, 1520), (76, 144), 34, 24 + 36),
    25: ((1300, 1550, 1850, 2200, 2550, 2950), (318, 470, 622), 78, 3 * 42),
    30: ((1300, 1600, 1900, 2250, 2600, 3000), (820, 990), 78, 2 * 48),
}
NEGATIVE = {16: 18, 23: 25, 28: 30}
# Thickness of a sensor, cells along phi and along the module (mm), by ColliderML's digitisation.
PIXEL, SHORT, LONG = (0.125, 0.05, 0.05), (0.2, 0.08, 0.4), (0.25, 0.125, 54.0)
SENSORS = dict.fromkeys((16, 17, 18), PIXEL) | dict.fromkeys((23, 24, 25), SHORT)
SENSORS |= dict.fromkeys((28, 29, 30), LONG)
DOUBLE_SIDED = {28: 5.0, 29: 6.6, 30: 5.0}  # mm between both sensors


def rows_of(volume: int) -> NDArray[np.int64]:
    return np.flatnonzero(ODD_LAYERS.volume_id == volume)


def sides(volume: int) -> int:
    return 2 if volume in DOUBLE_SIDED else 1


@pytest.mark.parametrize("volume", BARRELS)
def test_barrels_are_as_described(volume: int) -> None:
    cylinders, modules, length, gap, width = BARRELS[volume]
    rows = rows_of(volume).reshape(-1, sides(volume))
    assert ODD_LAYERS.is_barrel[rows].all()
    np.testing.assert_allclose(ODD_LAYERS.position[rows].mean(axis=1), [r for r, _ in cylinders])
    np.testing.assert_array_equal(
        ODD_LAYERS.n_phi[rows].T, [[n for _, n in cylinders]] * rows.shape[1]
    )
    half_length = (modules * length + (modules - 1) * gap) / 2
    np.testing.assert_allclose(ODD_LAYERS.high[rows], half_length, atol=gap)
    np.testing.assert_array_equal(ODD_LAYERS.low[rows], -ODD_LAYERS.high[rows])
    assert (ODD_LAYERS.n_rows[rows] == modules).all()
    np.testing.assert_allclose(ODD_LAYERS.row_length[rows], length, atol=gap)
    widths = 2 * ODD_LAYERS.half_angle[rows] * ODD_LAYERS.position[rows]
    np.testing.assert_allclose(widths, width, rtol=0.09)


@pytest.mark.parametrize("volume", [18, 30, 23])
def test_end_caps_are_as_described(volume: int) -> None:
    z, rings, half, modules = END_CAPS[NEGATIVE.get(volume, volume)]
    rows = rows_of(volume).reshape(-1, sides(volume))
    assert not ODD_LAYERS.is_barrel[rows].any()
    at = [-one for one in reversed(z)] if volume in NEGATIVE else z
    np.testing.assert_allclose(ODD_LAYERS.position[rows].mean(axis=1), at)
    assert (ODD_LAYERS.low[rows] == rings[0] - half).all()
    assert (ODD_LAYERS.high[rows] == rings[-1] + half).all()
    assert (ODD_LAYERS.n_rows[rows] == len(rings)).all()
    assert (ODD_LAYERS.n_phi[rows] * len(rings) == modules).all()


@pytest.mark.parametrize("volume", [17, 25, 28, 29])
def test_sensors_are_as_described(volume: int) -> None:
    rows = rows_of(volume)
    thickness, pitch_u, pitch_v = SENSORS[volume]
    assert (ODD_LAYERS.thickness[rows] == thickness).all()
    assert (ODD_LAYERS.pitch_u[rows] == pitch_u).all()
    np.testing.assert_allclose(ODD_LAYERS.pitch_v[rows], pitch_v, rtol=0.01)
    layers = np.unique(ODD_LAYERS.layer_id[rows])
    assert layers.tolist() == list(range(2, 2 * len(layers) + 1, 2))
    if volume in DOUBLE_SIDED:
        apart = np.diff(ODD_LAYERS.position[rows].reshape(-1, 2), axis=1)
        np.testing.assert_allclose(apart, DOUBLE_SIDED[volume])
    # Of the whole layer: 0.5 to 2 % of a radiation length per sensor.
    assert (np.abs(ODD_LAYERS.material[rows] - 0.0125) < 0.0075).all()


def test_detectors_are_found_by_name(tmp_path: Path) -> None:
    assert find_layers("odd") is ODD_LAYERS
    assert find_layers("trackml") is TRACKML_LAYERS
    write_detectors(tmp_path, TRACKML_LAYERS)
    assert len(find_layers(tmp_path)) == len(find_layers(tmp_path / "detectors.csv")) == 48
    with pytest.raises(InputError, match=r"nope: is neither .* built in \(trackml, odd\) nor"):
        find_layers("nope")
    with pytest.raises(InputError, match=r"holds no detectors\.csv"):
        find_layers(tmp_path.parent)


def test_volumes_tell_the_detector() -> None:
    assert np.unique(ODD_LAYERS.volume_id).tolist() == list(VOLUMES) == sorted(SENSORS)
    assert is_open_data_detector(ODD_LAYERS.volume_id)
    assert is_open_data_detector(np.array([24]))
    assert not is_open_data_detector(TRACKML_LAYERS.volume_id)
    assert not is_open_data_detector(np.array([16, 17, 18])), "TrackML's long strips, too"
    assert not is_open_data_detector(np.array([24, 8]))
    assert not is_open_data_detector(np.array([], dtype=np.int64))
