"""The triplet module map: which three modules tracks cross in a row, and windows for each triplet.

It follows Biscarat et al. ("Towards a realistic track reconstruction algorithm based on graph
neural networks for the HL-LHC", EPJ Web of Conferences 251, 03047, 2021), except for the bend in
the transverse plane: theirs is a difference of dy/dx, which is infinite for a doublet along y.

Shapes: M modules, T triplets of them, F = 10 features of a triplet of hits.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.events.event import Columns
from bigtrk.graphs.event_graph import Layout, Section, check_columns, check_rows
from bigtrk.graphs.features import Floats, Ints, doublet_columns, hit_coordinates
from bigtrk.graphs.storage.event_folder import SectionFile, digest, write_sections


def grouped(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the order that sorts rows of `keys` [K, C], and where groups of equal rows start."""
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    new = np.ones(len(keys), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(new)


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the distinct rows of `keys` [K, C], sorted, and each row's index among them [K]."""
    order, start = grouped(keys)
    number = np.empty(len(keys), dtype=np.int64)
    number[order] = np.repeat(np.arange(len(start)), np.diff(start, append=len(keys)))
    return keys[order[start]], number


def rows_of(wanted: Ints, known: Ints) -> Ints:
    """Returns the index in `known` [M, C] of each row of `wanted` [K, C], or -1: [K]."""
    different, number = numbered(np.concatenate([known, wanted]))
    row = np.full(len(different), -1, dtype=np.int64)
    row[number[: len(known)]] = np.arange(len(known))
    return row[number[len(known) :]]


# Columns (features.doublet_columns) of a triplet's first and second doublet.
DOUBLET_FEATURES = ("z0", "phi_slope", "deta", "dphi")
# dz/dr of the second doublet less that of the first; the angle (rad) between them in (x, y).
CHANGES = ("slope_change", "bend")
FEATURES = (
    *(f"{name}_{doublet}" for doublet in ("12", "23") for name in DOUBLET_FEATURES),
    *CHANGES,
)
FIRST, SECOND, CHANGE = slice(0, 4), slice(4, 8), slice(8, 10)  # rows of FEATURES


def are_within(bounds: Floats, features: Floats, triplet: Ints) -> NDArray[np.bool_]:
    """True if features [F, K] all lie in bounds [2, F, T] of their `triplet` [K], no NaN: [K]."""
    inside = np.ones(len(triplet), dtype=bool)
    for feature, lower, upper in zip(features, *bounds, strict=True):
        inside &= (lower[triplet] <= feature) & (feature <= upper[triplet])
    return inside


@dataclass(frozen=True)
class ModuleMap:
    """A learnt module map. made: how it was learnt.

    modules [M, 3]: volume, layer and module. triplets [T, 3]: rows of `modules` from the inside
    out, each triplet once. counts [T]: how often it was seen. bounds [2, F, T]: the least and the
    largest value of each feature.
    """

    made: str
    modules: Ints
    triplets: Ints
    counts: Ints
    bounds: Floats

    def sections(self) -> dict[str, Section]:
        """Returns the map's tensors, in the sections of its file."""
        joined = {name: torch.from_numpy(getattr(self, name)) for name in _MAP}
        ends = {name: torch.from_numpy(end) for name, end in zip(_BOUNDS, self.bounds, strict=True)}
        return {"map": joined, _WINDOWS: ends}

    def digest(self) -> str:
        """Returns the SHA-256 of the map's triplets and windows."""
        digests = {name: digest(section) for name, section in self.sections().items()}
        return hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()


FORMAT = "bigtrk module map"
# M modules, T triplets, F features.
_MAP: Layout = {
    "modules": (torch.int64, "M3"),
    "triplets": (torch.int64, "T3"),
    "counts": (torch.int64, "T"),
}
_BOUNDS: Layout = {"lower": (torch.float64, "FT"), "upper": (torch.float64, "FT")}
_WINDOWS = "minmax"  # their section


def write_module_map(path: Path, module_map: ModuleMap) -> None:
    """Writes `module_map` to one file, atomically."""
    record = {"format": FORMAT, "version": 1, "made": module_map.made, "features": [*FEATURES]}
    write_sections(path, module_map.sections(), record)


def read_module_map(path: Path) -> ModuleMap:
    """Reads a file of `write_module_map`; InputError if it is damaged, or another kind of file."""
    opened = SectionFile(path)
    if opened.record.get("format") != FORMAT:
        raise InputError(f"{path}: is not a module map; name a file that --learn-module-map made")
    made = opened.record.get("made")
    facts = [opened.record.get(name) for name in ("version", "features")]
    if facts != [1, [*FEATURES]] or not isinstance(made, str):
        raise InputError(
            f"{path}: was learnt by another version of bigtrk or from other features; learn the "
            "map again"
        )
    joined = opened.read("map")
    if "modules" not in joined:  # which graphs may lack
        raise InputError(f"{path}: has no modules; learn the map again")
    check_columns(joined, _MAP, {}, str(path))
    check_rows(joined["triplets"], len(joined["modules"]), f"{path}: triplets")
    sizes = {"F": len(FEATURES), "T": len(joined["triplets"])}
    ends = opened.read(_WINDOWS)
    check_columns(ends, _BOUNDS, sizes, f"{path}: {_WINDOWS}")
    bounds = np.stack([ends[name].numpy() for name in _BOUNDS])
    if not np.isfinite(bounds).all():
        raise InputError(f"{path}: has windows that are not finite; learn the map again")
    modules, triplets, counts = (joined[name].numpy() for name in _MAP)
    for rows, what in ((modules, "module"), (triplets, "triplet")):
        if len(grouped(rows)[1]) < len(rows):
            raise InputError(f"{path}: holds a {what} twice; learn the map again")
    return ModuleMap(made, modules, triplets, counts, bounds)


def hit_places(hits: Columns) -> dict[str, Floats]:
    """Returns the columns x, y, z, r (mm), phi (rad) and eta of `hits` [N]."""
    return {**{axis: hits[axis].astype(np.float64) for axis in "xy"}, **hit_coordinates(hits)}


def doublet_features(places: dict[str, Floats], doublets: Ints) -> Floats:
    """Computes DOUBLET_FEATURES of doublets [2, D]: [4, D]; infinite or NaN where dr = 0."""
    columns = doublet_columns(places, doublets)
    return np.stack([columns[name] for name in DOUBLET_FEATURES])


def changes(places: dict[str, Floats], triplets: Ints) -> Floats:
    """Computes CHANGES of triplets [3, K], between their doublets: [2, K]; not finite if dr = 0."""
    dx, dy, dz, dr = (np.diff(places[name][triplets], axis=0) for name in ("x", "y", "z", "r"))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = dz / dr
        slope_change = slope[1] - slope[0]
    bend = np.arctan2(dx[0] * dy[1] - dy[0] * dx[1], dx[0] * dx[1] + dy[0] * dy[1])
    return np.stack([slope_change, bend])
