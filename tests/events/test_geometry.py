from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.events.detectors import layers_from_detectors, module_table, write_detectors
from bigtrk.events.geometry import TRACKML_LAYERS, DetectorLayers
from bigtrk.events.reader import read_event
from bigtrk.events.trackml import read_detectors


def assert_close(first: DetectorLayers, second: DetectorLayers, mm: float) -> None:
    for field in fields(DetectorLayers):
        left, right = getattr(first, field.name), getattr(second, field.name)
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left.astype(float), right.astype(float), atol=mm, rtol=0)


def test_built_in_layers_are_those_of_the_data_set(testdata: Path) -> None:
    real = layers_from_detectors(read_detectors(testdata / "data" / "trackml_subevent"))
    assert_close(real, TRACKML_LAYERS, mm=0.01)


def test_real_hits_lie_on_the_built_in_layers(testdata: Path) -> None:
    hits = read_event(testdata / "data" / "trackml_event1000").hits
    layers = TRACKML_LAYERS
    key = hits["volume_id"].astype(int) * 100 + hits["layer_id"].astype(int)
    row = np.searchsorted(layers.volume_id * 100 + layers.layer_id, key)
    radius = np.hypot(hits["x"].astype(float), hits["y"].astype(float))
    z = hits["z"].astype(float)
    across = np.where(layers.is_barrel[row], radius, z) - layers.position[row]
    along = np.where(layers.is_barrel[row], z, radius)
    # Real modules are flat and tilted: up to 6.2 mm from their cylinder; corners stick out.
    assert np.abs(across).max() < 6.5
    assert (along > layers.low[row] - 1).all()
    assert (along < layers.high[row] + 3).all()


def test_written_detectors_give_the_layers_back(tmp_path: Path) -> None:
    write_detectors(tmp_path)
    assert_close(layers_from_detectors(read_detectors(tmp_path)), TRACKML_LAYERS, mm=0.001)


def test_module_table_is_a_set_of_distinct_modules_with_proper_rotations() -> None:
    table = {name: values.astype(float) for name, values in module_table().items()}
    keys = np.stack([table[name] for name in ("volume_id", "layer_id", "module_id")])
    assert np.unique(keys, axis=1).shape == keys.shape
    rotation = np.stack([[table[f"rot_{a}{b}"] for b in "uvw"] for a in "xyz"]).transpose(2, 0, 1)
    np.testing.assert_allclose(np.linalg.det(rotation), 1, atol=1e-12)
    np.testing.assert_allclose(
        rotation @ rotation.transpose(0, 2, 1),
        np.broadcast_to(np.eye(3), rotation.shape),
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"pitch_v": 0.0}, "pitch_v is 0, not from"),
        ({"module_hv": 1e300}, r"module_hv is 1e\+300, not from"),
        ({"cx": 0.0, "cy": 0.0}, "radius is 0, not from"),
    ],
)
def test_a_module_of_no_detector_is_refused(changed: dict[str, float], problem: str) -> None:
    """Hits on it would be nowhere, or its cells without end."""
    table = {name: values.copy() for name, values in module_table().items()}
    for name, value in changed.items():
        table[name][3] = value
    with pytest.raises(InputError, match=rf"detectors\.csv, row 5: {problem}"):
        layers_from_detectors(table)
    with pytest.raises(InputError, match="no modules; export it again"):
        layers_from_detectors({name: values[:0] for name, values in table.items()})
