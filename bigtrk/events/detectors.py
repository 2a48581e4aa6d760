"""Converts a module table (detectors.csv) to layers, and layers to a module table."""

from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from bigtrk.console import given_path
from bigtrk.errors import InputError
from bigtrk.events.event import MODULE_IDS, Columns
from bigtrk.events.geometry import (
    ODD_LAYERS,
    ODD_STRUCTURE,
    STRUCTURE,
    TRACKML_LAYERS,
    DetectorLayers,
    Float64,
    Int64,
    is_open_data_detector,
    layer_thickness,
    layers_from_rows,
)
from bigtrk.events.trackml import DETECTORS_FILE, FIX_VALUES, fail_at, read_detectors, write_table

# Far beyond the size of any detector (mm); other columns are within FARTHEST of 0. A track leaves
# as many cells as its path has pitches, and a module's place follows from its angle around the
# beam.
FARTHEST = 1e5
LIMITS = {
    "module_t": (1e-3, 100.0),
    "module_hv": (1e-3, FARTHEST),
    "pitch_u": (1e-3, FARTHEST),
    "pitch_v": (1e-3, FARTHEST),
    "radius": (1e-3, 2 * FARTHEST),
}
# Rows of modules are further apart than this, modules of one row closer together (mm).
ROW_SPACING = 5.0
# The sensors of a double-sided module lie behind each other to within this (mm).
SAME_PLACE = 1.0
BUILT_IN = {"trackml": TRACKML_LAYERS, "odd": ODD_LAYERS}


def find_layers(detector: str | Path) -> DetectorLayers:
    """Returns the layers of a built-in detector, given its name, or of a detectors.csv file."""
    if str(detector) in BUILT_IN:
        return BUILT_IN[str(detector)]
    path = given_path(detector)
    if not path.exists() and not path.name.startswith(DETECTORS_FILE):
        raise InputError(
            f"{path}: is neither a built-in detector ({', '.join(BUILT_IN)}) nor a file; name one "
            f"of these detectors, or a {DETECTORS_FILE}"
        )
    return layers_from_detectors(read_detectors(path))


def layers_from_detectors(detectors: Columns) -> DetectorLayers:
    """Derives detector layers from a module table, sorted by volume, layer, then sensor.

    A layer is a cylinder if its modules face outwards, a disc if they face along z. The table does
    not give a layer's material: it is taken from the same volume of the Open Data Detector, if the
    volumes are that detector's, else of TrackML's. InputError if the table is empty, or a row
    describes no module of a detector; the message names this row.
    """
    _check_modules(detectors)
    volume, layer = (detectors[name].astype(np.int64) for name in ("volume_id", "layer_id"))
    keys = np.unique(np.stack([volume, layer], axis=1), axis=0)
    if len(keys) == 0:
        raise InputError("detectors.csv: the table has no modules; export it again")
    structure = ODD_STRUCTURE if is_open_data_detector(volume) else STRUCTURE
    rows = []
    for volume_id, layer_id in keys:
        members = (volume == volume_id) & (layer == layer_id)
        modules = {name: column[members].astype(np.float64) for name, column in detectors.items()}
        for sensors in _by_side(modules):
            row = _layer_row(sensors)
            material = layer_thickness(int(volume_id), sensors["module_t"].mean(), structure)
            rows.append((volume_id, layer_id, *row, material))
    return layers_from_rows(rows)


def _check_modules(detectors: Columns) -> None:
    lengths = {
        name: column.astype(np.float64)
        for name, column in detectors.items()
        if name not in MODULE_IDS
    }
    lengths["radius"] = np.hypot(lengths["cx"], lengths["cy"])
    for name, column in lengths.items():
        least, most = LIMITS.get(name, (-FARTHEST, FARTHEST))
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            problem = f"{name} is {column[wrong[0]]:g}, not from {least:g} to {most:g}"
            fail_at("detectors.csv", int(wrong[0]), problem, FIX_VALUES)


def _is_barrel(modules: dict[str, Float64]) -> bool:
    return bool(np.abs(modules["rot_zw"]).mean() < 0.5)


def _by_side(modules: dict[str, Float64]) -> list[dict[str, Float64]]:
    """Splits a layer's modules by sensor: a table of the single or inner sensors, then, if modules
    are double-sided, one of the outer sensors.
    """
    radius = np.hypot(modules["cx"], modules["cy"])
    is_barrel = _is_barrel(modules)
    across = radius if is_barrel else modules["cz"]
    # Seen along the normal, the sensors of a module are at one point.
    scale = radius.mean() / radius if is_barrel else np.ones_like(radius)
    depth = modules["cz"] if is_barrel else np.zeros_like(radius)
    points = np.stack([modules["cx"] * scale, modules["cy"] * scale, depth], axis=1)
    outer = across > across[_partners(points)]
    tables = [{name: column[side] for name, column in modules.items()} for side in (~outer, outer)]
    return tables if outer.any() else tables[:1]


def _partners(points: Float64) -> Int64:
    """Returns the nearest other point within SAME_PLACE of each, or itself: [M, 3] -> [M]."""
    every = np.arange(len(points))
    _, nearest = cKDTree(points).query(points, k=2, distance_upper_bound=SAME_PLACE)
    other = np.where(nearest[:, 0] == every, nearest[:, 1], nearest[:, 0])
    partner: Int64 = np.where(other < len(points), other, every)
    return partner


def _layer_row(modules: dict[str, Float64]) -> tuple[float, ...]:
    radius = np.hypot(modules["cx"], modules["cy"])
    is_barrel = _is_barrel(modules)
    across, along = (radius, modules["cz"]) if is_barrel else (modules["cz"], radius)
    n_rows = 1 + int((np.diff(np.sort(along)) > ROW_SPACING).sum())
    # Sides alternate from column to column, so their number is even.
    n_phi = max(2, 2 * round(len(along) / n_rows / 2))
    half = modules["module_hv"]
    return (
        is_barrel,
        (across.min() + across.max()) / 2,
        (along - half).min(),
        (along + half).max(),
        n_phi,
        n_rows,
        (across.max() - across.min()) / 2,
        *(modules[name].mean() for name in ("module_t", "pitch_u", "pitch_v")),
    )


def module_table(layers: DetectorLayers = TRACKML_LAYERS) -> Columns:
    """Makes the table of all modules, [M] rows, in the columns of TrackML's detectors.csv.

    u points along phi, v along z (barrel) or outwards (disc), w is the normal.
    """
    layer, column, row = module_places(layers)
    barrel = layers.is_barrel[layer]
    phi, along = layers.column_phi(layer, column), layers.row_centre(layer, row)
    across = layers.surface(layer, column)
    radius = np.where(barrel, across, along)
    half_row = layers.row_length[layer] / 2
    inner = np.where(barrel, radius, radius - half_row)
    outer = np.where(barrel, radius, radius + half_row)
    # u x v = w: on a disc phi x r points to -z.
    cos, sin, zero = np.cos(phi), np.sin(phi), np.zeros_like(phi)
    u = (-sin, cos, zero)
    v = (np.where(barrel, zero, cos), np.where(barrel, zero, sin), 1.0 * barrel)
    w = (np.where(barrel, cos, zero), np.where(barrel, sin, zero), 1.0 * barrel - 1)
    rotation = {
        f"rot_{axis}{name}": column
        for axis, columns in zip("xyz", zip(u, v, w, strict=True), strict=True)
        for name, column in zip("uvw", columns, strict=True)
    }
    return {
        "volume_id": layers.volume_id[layer],
        "layer_id": layers.layer_id[layer],
        "module_id": layers.module_id(layer, column, row),
        "cx": radius * np.cos(phi),
        "cy": radius * np.sin(phi),
        "cz": np.where(barrel, along, across),
        **rotation,
        "module_t": layers.thickness[layer],
        "module_minhu": inner * layers.half_angle[layer],
        "module_maxhu": outer * layers.half_angle[layer],
        "module_hv": half_row,
        "pitch_u": layers.pitch_u[layer],
        "pitch_v": layers.pitch_v[layer],
    }


def write_detectors(folder: Path, layers: DetectorLayers = TRACKML_LAYERS) -> Path:
    """Writes the module table of `layers` as `folder/detectors.csv.gz`."""
    return write_table(module_table(layers), folder / "detectors.csv", compress=True)


def module_places(layers: DetectorLayers) -> tuple[Int64, Int64, Int64]:
    """Returns layer, column and row of every module, each [M], sorted by layer and module_id."""
    counts = layers.n_phi * layers.n_rows
    layer = np.repeat(np.arange(len(layers)), counts)
    number = np.arange(len(layer)) - np.repeat(np.cumsum(counts) - counts, counts)
    return layer, number % layers.n_phi[layer], number // layers.n_phi[layer]
