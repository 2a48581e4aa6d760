"""The file of a module map: its triplets and both kinds of windows, with checksums; no pickle."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from bigtrk.config import Settings, parse
from bigtrk.errors import InputError
from bigtrk.graphs.builders.module_map.groups import grouped
from bigtrk.graphs.builders.module_map.module_map import FEATURES, Bounds, ModuleMap
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.checks import Layout, check_columns, check_rows
from bigtrk.graphs.storage.tensor_files import SectionFile, write_sections

FORMAT = "bigtrk module map"
# M modules, T triplets, F features.
_MAP: Layout = {
    "modules": (torch.int64, "M3"),
    "triplets": (torch.int64, "T3"),
    "counts": (torch.int64, "T"),
}
_BOUNDS: Layout = {"lower": (torch.float64, "FT"), "upper": (torch.float64, "FT")}


class _Record(Settings):
    """The record beside the tensors."""

    format: Literal["bigtrk module map"]
    version: Literal[1]
    made: str
    features: tuple[str, ...]


def write_module_map(path: Path, module_map: ModuleMap) -> None:
    """Writes `module_map` to one file, atomically."""
    record = _Record(format=FORMAT, version=1, made=module_map.made, features=FEATURES)
    write_sections(path, module_map.sections(), record.model_dump(mode="json"))


def read_module_map(path: Path) -> ModuleMap:
    """Reads what `write_module_map` wrote, and verifies its checksums.

    Raises:
        InputError: the file is missing, damaged, none of a module map, or of another version.
    """
    opened = SectionFile(path)
    if opened.record.get("format") != FORMAT:
        raise InputError(
            f"{path}: holds no module map; name a file that --learn-module-map has made"
        )
    record = parse(_Record, opened.record, str(path))
    if record.features != FEATURES:
        raise InputError(f"{path}: is of other features than {', '.join(FEATURES)}; learn it again")
    joined = opened.read("map")
    if "modules" not in joined:  # which graphs may lack
        raise InputError(f"{path}: has no modules; learn it again")
    check_columns(joined, _MAP, {}, str(path))
    check_rows(joined["triplets"], len(joined["modules"]), f"{path}: triplets")
    sizes = {"F": len(FEATURES), "T": len(joined["triplets"])}
    bounds = {kind: _read_bounds(opened, kind, sizes) for kind in MapWindows}
    modules, triplets, counts = (joined[name].numpy() for name in _MAP)
    for rows, what in ((modules, "module"), (triplets, "triplet")):
        if len(grouped(rows)[1]) < len(rows):
            raise InputError(f"{path}: holds a {what} twice; learn it again")
    return ModuleMap(record.made, modules, triplets, counts, bounds)


def _read_bounds(opened: SectionFile, kind: MapWindows, sizes: dict[str, int]) -> Bounds:
    ends = opened.read(kind.value)
    check_columns(ends, _BOUNDS, sizes, f"{opened.path}: {kind.value}")
    lower, upper = (ends[name].numpy() for name in _BOUNDS)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise InputError(f"{opened.path}: {kind.value} windows are not finite; learn it again")
    return Bounds(lower, upper)
