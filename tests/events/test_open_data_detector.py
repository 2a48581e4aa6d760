"""The Open Data Detector's tracker: real hits lie on its layers; its modules and cells."""

from pathlib import Path

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.events.detectors import find_layers, write_detectors
from bigtrk.events.geometry import ODD_LAYERS, TRACKML_LAYERS, VOLUMES, is_open_data_detector
from bigtrk.events.reader import find_events, read_event

# Modules of each layer by the description's xml: columns x rows of a barrel, rings of a disc.
MODULES = {
    17: [16 * 14, 32 * 14, 52 * 14, 78 * 14],
    24: [40 * 21, 56 * 21, 78 * 21, 102 * 21],
    29: [2 * 60 * 21, 2 * 80 * 21],
    **dict.fromkeys((16, 18), [24 + 36] * 7),
    **dict.fromkeys((23, 25), [3 * 42] * 6),
    **dict.fromkeys((28, 30), [2 * 2 * 48] * 6),
}
# Thickness of a sensor, cells along phi and along the module (mm), by ColliderML's digitisation; a
# long strip is as long as its module.
PIXEL, SHORT = (0.125, 0.05, 0.05), (0.2, 0.08, 0.4)
SENSORS = dict.fromkeys((16, 17, 18), PIXEL) | dict.fromkeys((23, 24, 25), SHORT)
SENSORS |= {29: (0.25, 0.125, 108.5)} | dict.fromkeys((28, 30), (0.25, 0.125, 156.0))
# Modules are flat and tilted: their distance from the cylinder or plane of their column (mm).
DEPTH = {17: 1.0, 24: 3.1, 29: 3.4}


@pytest.mark.parametrize("volume", MODULES)
def test_modules_and_sensors_are_as_described(volume: int) -> None:
    rows = np.flatnonzero(ODD_LAYERS.volume_id == volume)
    layers = ODD_LAYERS.layer_id[rows]
    first = 4 if volume == 16 else 2
    modules = ODD_LAYERS.n_phi[rows] * ODD_LAYERS.n_rows[rows]
    counted = [int(modules[layers == layer].sum()) for layer in np.unique(layers)]
    assert np.unique(layers).tolist() == list(range(first, first + 2 * len(counted), 2))
    assert counted == MODULES[volume]
    found = ODD_LAYERS.thickness[rows], ODD_LAYERS.pitch_u[rows], ODD_LAYERS.pitch_v[rows]
    for column, wanted in zip(found, SENSORS[volume], strict=True):
        assert (column == wanted).all()
    # Of the whole layer: 0.5 to 2 % of a radiation length per sensor.
    assert (np.abs(ODD_LAYERS.material[rows] - 0.0125) < 0.0075).all()


def test_real_hits_lie_on_the_layers(testdata: Path) -> None:
    folder = testdata / "data" / "colliderml_production"
    for name in find_events(folder)[4:6]:
        event = read_event(folder, name)
        assert event.truth is not None
        x, y, z = (event.truth[axis].astype(float) for axis in ("tx", "ty", "tz"))
        ids = event.hits["volume_id"].astype(int), event.hits["layer_id"].astype(int)
        nearest = np.full(len(x), np.inf)
        for row in range(len(ODD_LAYERS)):
            here = (ids[0] == ODD_LAYERS.volume_id[row]) & (ids[1] == ODD_LAYERS.layer_id[row])
            across = z if not ODD_LAYERS.is_barrel[row] else np.hypot(x, y)
            along = np.hypot(x, y) if not ODD_LAYERS.is_barrel[row] else z
            off = np.abs(np.abs(across - ODD_LAYERS.position[row]) - ODD_LAYERS.gap[row])
            off[~here | ~ODD_LAYERS.extends(np.full(len(x), row), along, beyond=2.0)] = np.inf
            nearest = np.minimum(nearest, off)
        for volume in MODULES:
            assert nearest[ids[0] == volume].max(initial=0) < DEPTH.get(volume, 0.2)


def test_detectors_are_found_by_name(tmp_path: Path) -> None:
    assert find_layers("odd") is ODD_LAYERS
    assert find_layers("trackml") is TRACKML_LAYERS
    write_detectors(tmp_path, TRACKML_LAYERS)
    assert len(find_layers(tmp_path)) == len(find_layers(tmp_path / "detectors.csv")) == 48
    with pytest.raises(InputError, match=r"nope: is neither .* detector \(trackml, odd\) nor"):
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
