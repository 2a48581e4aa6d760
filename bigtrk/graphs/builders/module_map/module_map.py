"""The triplet module map: which three modules a track passes in a row, and within which windows.

As that of Biscarat et al. ("Towards a realistic track reconstruction algorithm based on graph
neural networks for the HL-LHC", EPJ Web of Conferences 251, 03047, 2021), but for the bend in the
transverse plane: theirs is a difference of dy/dx, which is infinite for a doublet along y.

Shapes: M modules, T triplets of them, F = 10 features of a triplet of hits.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.coordinates import Floats, Ints
from bigtrk.graphs.storage.tensor_files import Section, digest

# Of the triplet's first doublet and of its second: coordinates.doublet_columns.
DOUBLET_FEATURES = ("z0", "phi_slope", "deta", "dphi")
# dz/dr of the second doublet less that of the first; the angle (rad) between them in (x, y).
CHANGES = ("slope_change", "bend")
FEATURES = (
    *(f"{name}_{doublet}" for doublet in ("12", "23") for name in DOUBLET_FEATURES),
    *CHANGES,
)
FIRST, SECOND, CHANGE = slice(0, 4), slice(4, 8), slice(8, 10)  # rows of FEATURES


@dataclass(frozen=True)
class Bounds:
    """Windows of triplets, each inclusive: lower and upper [F, T]."""

    lower: Floats
    upper: Floats

    def at(self, rows: slice) -> "Bounds":
        """Takes some rows of FEATURES."""
        return Bounds(self.lower[rows], self.upper[rows])

    def hold(self, features: Floats, triplet: Ints) -> NDArray[np.bool_]:
        """Says of which columns of `features` [F, K] all are within the windows of their `triplet`
        [K]: [K]; never where one is NaN.
        """
        inside = np.ones(len(triplet), dtype=bool)
        for feature, lower, upper in zip(features, self.lower, self.upper, strict=True):
            inside &= (lower[triplet] <= feature) & (feature <= upper[triplet])
        return inside


@dataclass(frozen=True)
class ModuleMap:
    """A learnt map; made: how.

    modules [M, 3]: volume, layer and module. triplets [T, 3]: rows of `modules` from the inside
    out, none twice. counts [T]: how often each was seen. bounds: of each kind of windows.
    """

    made: str
    modules: Ints
    triplets: Ints
    counts: Ints
    bounds: dict[MapWindows, Bounds]

    def sections(self) -> dict[str, Section]:
        """Returns the map's tensors, windows in sections of their own, as its file has them."""
        joined = {"modules": self.modules, "triplets": self.triplets, "counts": self.counts}
        made = {"map": {name: torch.from_numpy(rows) for name, rows in joined.items()}}
        for kind, bounds in self.bounds.items():
            ends = {"lower": bounds.lower, "upper": bounds.upper}
            made[kind.value] = {name: torch.from_numpy(rows) for name, rows in ends.items()}
        return made

    def digest(self) -> str:
        """Returns the SHA-256 of triplets and windows."""
        digests = {name: digest(section) for name, section in self.sections().items()}
        return hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()
