"""Node and edge features by name, in mm and rad, and the scales that make them of order one.

Shapes: N nodes, E edges, F node features, G edge features, C cells.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Columns
from bigtrk.graphs.coordinates import Floats, Ints, wrapped

NODE_FEATURES = ("r", "phi", "z", "eta")
CELL_FEATURES = ("cluster_count", "cluster_value", "cluster_u", "cluster_v")
EDGE_FEATURES = ("dr", "dphi", "dz", "deta", "phislope", "rphislope")

# r, z in 1000 mm and phi in pi are the field's choice (HEPTrkX, acorn); the edge features' scales
# follow from them, so that normalised features equal acorn's. Clusters: the 90 % quantiles of
# TrackML events are 7 cells, charge 3, and 3 and 5 channels.
SCALES: dict[str, float] = {
    "r": 1000.0,
    "phi": math.pi,
    "z": 1000.0,
    "eta": 1.0,
    "cluster_count": 10.0,
    "cluster_value": 1.0,
    "cluster_u": 10.0,
    "cluster_v": 10.0,
    "dr": 1000.0,
    "dphi": math.pi,
    "dz": 1000.0,
    "deta": 1.0,
    "phislope": math.pi / 1000.0,
    "rphislope": math.pi,
}

# acorn clamps dphi / dr to 100 in units of pi / 1000 mm.
PHISLOPE_LIMIT = 100.0 * SCALES["phislope"]  # rad/mm


def edge_columns(nodes: Mapping[str, Floats], edge_index: Ints) -> dict[str, Floats]:
    """The features `EDGE_FEATURES` of edges [2, E], each [E], from the columns of their nodes.

    As acorn defines them (`acorn/utils/loading_utils.py`): phislope = dphi / dr, clamped,
    rphislope = mean r x phislope; both are 0 where dr is 0.
    """
    source, destination = edge_index
    dr, dz, deta = (nodes[c][destination] - nodes[c][source] for c in ("r", "z", "eta"))
    dphi = wrapped(nodes["phi"][destination] - nodes["phi"][source])
    slope = np.divide(dphi, dr, out=np.zeros_like(dr), where=dr != 0)
    phislope = np.clip(slope, -PHISLOPE_LIMIT, PHISLOPE_LIMIT)
    mean_r = (nodes["r"][destination] + nodes["r"][source]) / 2
    columns = (dr, dphi, dz, deta, phislope, mean_r * phislope)
    return dict(zip(EDGE_FEATURES, columns, strict=True))


def cluster_columns(hit_id: Ints, cells: Columns) -> dict[str, Floats]:
    """The features `CELL_FEATURES` [N] of hits `hit_id` [N]; 0 for a hit without cells.

    cluster_count: number of cells; cluster_value: their summed charge; cluster_u, cluster_v:
    channels spanned in ch0 and ch1.
    """
    n_hits = len(hit_id)
    order = np.argsort(hit_id, kind="stable")
    row = order[np.searchsorted(hit_id[order], cells["hit_id"].astype(np.int64))]
    value = cells["value"].astype(np.float64)
    return {
        "cluster_count": np.bincount(row, minlength=n_hits).astype(np.float64),
        "cluster_value": np.bincount(row, weights=value, minlength=n_hits).astype(np.float64),
        "cluster_u": _extent(row, cells["ch0"].astype(np.int64), n_hits),
        "cluster_v": _extent(row, cells["ch1"].astype(np.int64), n_hits),
    }


def _extent(row: Ints, channel: Ints, n_hits: int) -> Floats:
    by_row = np.argsort(row, kind="stable")
    rows, start = np.unique(row[by_row], return_index=True)
    extent = np.zeros(n_hits)
    if len(rows):
        sorted_channel = channel[by_row]
        highest = np.maximum.reduceat(sorted_channel, start)
        extent[rows] = highest - np.minimum.reduceat(sorted_channel, start) + 1
    return extent


def as_tensor(columns: Mapping[str, Floats]) -> Tensor:
    """Columns [rows] side by side in their order: [rows, len(columns)] float32."""
    return torch.from_numpy(np.stack(list(columns.values()), axis=1).astype(np.float32))


def normalised(
    features: Tensor, names: Sequence[str], scales: Mapping[str, float], chosen: Sequence[str]
) -> Tensor:
    """The columns `chosen`, divided by their scales: [rows, len(names)] -> [rows, len(chosen)].

    Raises:
        InputError: a chosen feature is not among `names`, or has no scale.
    """
    for name in chosen:
        if name not in names:
            raise InputError(f"graphs have no feature {name!r}; they have {', '.join(names)}")
        if name not in scales:
            raise InputError(f"feature {name!r} has no scale; there are {', '.join(scales)}")
    columns = [list(names).index(name) for name in chosen]
    scale = torch.tensor([scales[name] for name in chosen], dtype=features.dtype)
    return features[:, columns] / scale.to(features.device)
