"""Node and edge features by name, in mm and rad, and the scales that make them of order one.

Shapes: N nodes, E edges, F node features, G edge features, C cells.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Columns
from bigtrk.graphs.event_graph import AT_A_TIME
from bigtrk.user_code import names_code

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Keeps eta finite for a hit on the beam line.
R_MIN = 1e-6  # mm


def cylindrical(x: Floats, y: Floats, z: Floats) -> dict[str, Floats]:
    """Returns the columns r (mm), phi (rad), z (mm) and eta of points x, y, z [N] (mm)."""
    return with_eta(np.hypot(x, y), np.arctan2(y, x), z)


def with_eta(r: Floats, phi: Floats, z: Floats) -> dict[str, Floats]:
    """Returns the columns r, phi, z and eta of points r, phi, z [N] (mm, rad)."""
    return {"r": r, "phi": phi, "z": z, "eta": eta_of(r, z)}


def eta_of(r: Floats, z: Floats) -> Floats:
    """Returns eta of points r, z [N] (mm)."""
    return np.arcsinh(z / np.maximum(r, R_MIN))


def hit_coordinates(hits: Columns) -> dict[str, Floats]:
    """Returns the columns r, phi, z and eta of `hits` [N]."""
    x, y, z = (hits[axis].astype(np.float64) for axis in "xyz")
    return cylindrical(x, y, z)


def wrapped(angle: Floats) -> Floats:
    """Wraps a difference of two angles in [-pi, pi] into [-pi, pi]."""
    return np.where(
        angle > np.pi, angle - 2 * np.pi, np.where(angle < -np.pi, angle + 2 * np.pi, angle)
    )


def doublet_columns(nodes: Mapping[str, Floats], pairs: Ints) -> dict[str, Floats]:
    """Returns the columns that windows cut on, for hit pairs [2, K], each [K]: dr (mm), dphi (rad),
    phi_slope = dphi / dr (rad/mm), deta, and z0 (mm), where the straight line through both hits in
    (r, z) meets the beam line. dr = 0 gives infinities and NaN.
    """
    inner, outer = pairs
    dr = nodes["r"][outer] - nodes["r"][inner]
    dphi = wrapped(nodes["phi"][outer] - nodes["phi"][inner])
    with np.errstate(divide="ignore", invalid="ignore"):
        z0 = nodes["z"][inner] - nodes["r"][inner] * (nodes["z"][outer] - nodes["z"][inner]) / dr
        phi_slope = dphi / dr
    deta = nodes["eta"][outer] - nodes["eta"][inner]
    return {"dr": dr, "dphi": dphi, "phi_slope": phi_slope, "z0": z0, "deta": deta}


# A number that divides a column, or its measured mean and deviation (training/data/features.py).
Scale = float | tuple[float, float]

NODE_FEATURES = ("r", "phi", "z", "eta")
CELL_FEATURES = ("cluster_count", "cluster_value", "cluster_u", "cluster_v")
# These are computed when they are asked for: phi alone puts neighbours at -pi and pi far apart.
FROM_PHI: dict[str, Callable[[Tensor], Tensor]] = {"cos_phi": torch.cos, "sin_phi": torch.sin}
POSITIONS = ("r", "phi", "z")  # the features of nodes that those of edges are computed from
EDGE_FEATURES = ("dr", "dphi", "dz", "deta", "phislope", "rphislope")

# About the standard deviations in the graphs of event 1000 and of simulated events; those of
# clusters about their 90 % quantiles. The field's usual 1000 mm and pi leave edge features at 0.01
# to 0.1, below the first layer's bias.
SCALES: dict[str, float] = {
    "r": 300.0,
    "phi": 2.0,
    "z": 1000.0,
    "eta": 2.0,
    "cos_phi": 0.7,
    "sin_phi": 0.7,
    "cluster_count": 10.0,
    "cluster_value": 1.0,
    "cluster_u": 10.0,
    "cluster_v": 10.0,
    "dr": 100.0,
    "dphi": 0.03,
    "dz": 300.0,
    "deta": 0.03,
    "phislope": 0.0005,
    "rphislope": 0.1,
}

# acorn clamps dphi / dr to 100 in units of pi / 1000 mm.
PHISLOPE_LIMIT = 100.0 * math.pi / 1000.0  # rad/mm


def edge_columns(nodes: Mapping[str, Floats], edge_index: Ints) -> dict[str, Floats]:
    """Computes `EDGE_FEATURES` of edges [2, E], each [E], from the columns of their nodes, as acorn
    (`acorn/utils/loading_utils.py`): phislope = dphi / dr, clamped, rphislope = mean r x phislope;
    both are 0 where dr is 0.
    """
    source, destination = edge_index
    dr, dz, deta = (nodes[c][destination] - nodes[c][source] for c in ("r", "z", "eta"))
    dphi = wrapped(nodes["phi"][destination] - nodes["phi"][source])
    with np.errstate(over="ignore"):  # of a tiny dr, clamped below
        slope = np.divide(dphi, dr, out=np.zeros_like(dr), where=dr != 0)
    phislope = np.clip(slope, -PHISLOPE_LIMIT, PHISLOPE_LIMIT)
    mean_r = (nodes["r"][destination] + nodes["r"][source]) / 2
    columns = (dr, dphi, dz, deta, phislope, mean_r * phislope)
    return dict(zip(EDGE_FEATURES, columns, strict=True))


def edge_table(nodes: Mapping[str, Floats], edge_index: Ints) -> Tensor:
    """Computes `EDGE_FEATURES` of edges [2, E] from the columns of their nodes: [E, G] float32."""
    n_edges = edge_index.shape[1]
    table = torch.empty(n_edges, len(EDGE_FEATURES))
    for start in range(0, n_edges, AT_A_TIME):
        some = slice(start, start + AT_A_TIME)
        table[some] = as_tensor(edge_columns(nodes, edge_index[:, some]))
    return table


def cluster_columns(hit_id: Ints, cells: Columns) -> dict[str, Floats]:
    """Computes `CELL_FEATURES` [N] of hits `hit_id` [N]; 0 for a hit without cells: the number of
    cells, their summed charge, and the channels spanned in ch0 and ch1.
    """
    n_hits = len(hit_id)
    order = np.argsort(hit_id, kind="stable")
    row = order[np.searchsorted(hit_id[order], cells["hit_id"].astype(np.int64))]
    value = cells["value"].astype(np.float64)
    columns = {
        "cluster_count": np.bincount(row, minlength=n_hits).astype(np.float64),
        "cluster_value": np.bincount(row, weights=value, minlength=n_hits).astype(np.float64),
        "cluster_u": np.zeros(n_hits),
        "cluster_v": np.zeros(n_hits),
    }
    by_row = np.argsort(row, kind="stable")
    rows, start = np.unique(row[by_row], return_index=True)
    for name, channels in (("cluster_u", "ch0"), ("cluster_v", "ch1")):
        if len(rows):
            channel = cells[channels].astype(np.int64)[by_row]
            highest = np.maximum.reduceat(channel, start)
            columns[name][rows] = highest - np.minimum.reduceat(channel, start) + 1
    return columns


def as_tensor(columns: Mapping[str, Floats]) -> Tensor:
    """Joins columns [rows] side by side in their order: [rows, len(columns)] float32."""
    return torch.from_numpy(np.stack(list(columns.values()), axis=1).astype(np.float32))


def available(names: Sequence[str]) -> list[str]:
    """Lists the features that graphs with features `names` have, those computed from phi too."""
    return [*names, *(FROM_PHI if "phi" in names else ())]


def available_edges(names: Sequence[str], node_names: Sequence[str]) -> list[str]:
    """Lists the features of edges that graphs have, those that nodes' positions give too."""
    from_positions = EDGE_FEATURES if {*POSITIONS} <= {*node_names} else ()
    return [*dict.fromkeys((*names, *from_positions))]


def normalised(
    features: Tensor, names: Sequence[str], scales: Mapping[str, Scale], chosen: Sequence[str]
) -> Tensor:
    """Makes the columns `chosen` of order one: [rows, len(names)] -> [rows, len(chosen)].

    Raises:
        InputError: a chosen feature is not among `names`, or has no scale.
    """
    for name in chosen:
        if name not in available(names):
            raise InputError(f"graphs have no feature {name!r}; they have {', '.join(names)}")
        if name not in scales:
            raise InputError(f"feature {name!r} has no scale; there are {', '.join(scales)}")
    divisors = [1.0 if isinstance(scale := scales[name], tuple) else scale for name in chosen]
    divided = torch.tensor(divisors, dtype=features.dtype).to(features.device)
    if [*chosen] == [*names] and not any(isinstance(scales[name], tuple) for name in chosen):
        return features / divided  # at once, in a third of the time of column by column
    values = features.new_empty(len(features), len(chosen))
    stored = dict(zip(names, features.unbind(1), strict=True))
    for place, name in zip(values.unbind(1), chosen, strict=True):
        column = stored[name] if name in stored else FROM_PHI[name](stored["phi"])
        if isinstance(scale := scales[name], tuple):
            column = (column.double() - scale[0]) / scale[1]  # in float64: a mean may be large
        place.copy_(column)
    return values.div_(divided)


def check_finite(
    what: str, chosen: Sequence[str], features: Tensor, names: Sequence[str], ids: Tensor
) -> None:
    """Refuses values that are not finite in the chosen columns of nodes' or edges' `features`
    [rows, len(names)].

    what: the event, and "node" or "edge". ids [rows]: the rows' numbers in the event.
    """
    if features.sum().isfinite():  # then all are, which takes a tenth of the time of asking each
        return
    read = {*chosen, *(["phi"] if FROM_PHI.keys() & chosen else [])}
    for name in read.intersection(names):
        column = features[:, list(names).index(name)]
        for row in (~column.isfinite()).nonzero()[:1, 0].tolist():
            remedy = "mend it" if names_code(name) else "build the graph again"
            raise InputError(
                f"{what} {int(ids[row])} has {name} {float(column[row])}; {remedy}, or choose "
                f"features without {name}"
            )
