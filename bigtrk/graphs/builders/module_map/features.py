"""The features of doublets and triplets of hits that a module map has windows for.

Shapes: N hits, D doublets, K triplets of hits.
"""

import numpy as np

from bigtrk.events.event import Columns
from bigtrk.graphs.builders.module_map.module_map import DOUBLET_FEATURES
from bigtrk.graphs.coordinates import Floats, Ints, doublet_columns, hit_coordinates


def hit_places(hits: Columns) -> dict[str, Floats]:
    """Returns the columns x, y, z, r (mm), phi (rad) and eta of `hits` [N]."""
    return {**{axis: hits[axis].astype(np.float64) for axis in "xy"}, **hit_coordinates(hits)}


def doublet_features(places: dict[str, Floats], doublets: Ints) -> Floats:
    """Returns DOUBLET_FEATURES of doublets [2, D]: [4, D]; infinities and NaN where dr = 0."""
    columns = doublet_columns(places, doublets)
    return np.stack([columns[name] for name in DOUBLET_FEATURES])


def changes(places: dict[str, Floats], triplets: Ints) -> Floats:
    """Returns CHANGES from the first doublet of triplets [3, K] to the second: [2, K]; not finite
    where a dr = 0.
    """
    dx, dy, dz, dr = (np.diff(places[name][triplets], axis=0) for name in ("x", "y", "z", "r"))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = dz / dr
        slope_change = slope[1] - slope[0]
    bend = np.arctan2(dx[0] * dy[1] - dy[0] * dx[1], dx[0] * dx[1] + dy[0] * dy[1])
    return np.stack([slope_change, bend])
