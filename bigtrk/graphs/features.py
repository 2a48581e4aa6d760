"""Node and edge features by name, in mm and rad, and the scales that make them of order one.
Features may be computed as a graph is read: by users' functions or, of edges, from node positions.

A node function is called with the nodes' columns; an edge function with the edges' columns and
those of both end nodes; columns are looked up by name. It returns one number for each row, computed
from that row alone.

Shapes: N nodes, E edges, F node features, G edge features, C cells, M rows, N of nodes or E of
edges.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Columns
from bigtrk.graphs.event_graph import AT_A_TIME, Sector
from bigtrk.process import uploaded
from bigtrk.user_code import load_function, names_code, users_errors

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
    """Wraps a difference of two angles, each in [-pi, pi], into [-pi, pi]."""
    return np.where(
        angle > np.pi, angle - 2 * np.pi, np.where(angle < -np.pi, angle + 2 * np.pi, angle)
    )


def doublet_columns(nodes: Mapping[str, Floats], pairs: Ints) -> dict[str, Floats]:
    """Computes the columns that windows cut on, for pairs of hits [2, K], each [K]: dr (mm), dphi
    (rad), phi_slope = dphi / dr (rad/mm), deta, and z0 (mm), where the straight line through both
    hits in (r, z) meets the beam line. If dr = 0, values are infinite or NaN.
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
# Computed on request: phi alone puts neighbours at -pi and pi far apart.
FROM_PHI: dict[str, Callable[[Tensor], Tensor]] = {"cos_phi": torch.cos, "sin_phi": torch.sin}
POSITIONS = ("r", "phi", "z")  # the node features from which edge features are computed
EDGE_FEATURES = ("dr", "dphi", "dz", "deta", "phislope", "rphislope")
# These are computed when they are asked for, never stored. z0 (mm): where the straight line through
# both hits in (r, z) meets the beam line. A track keeps z0 and phislope from edge to edge, so their
# waves tell a network finely which edges agree, where both numbers alone are too coarse.
Z0_LIMIT = 1000.0  # mm
_LENGTHS = {"z0": (4.0, 16.0, 64.0, 256.0), "phislope": (0.0001, 0.0004, 0.0016)}  # mm, rad/mm
WAVES = {
    f"{wave}_{column}_{length:g}": (function, column, 2.0 * math.pi / length)
    for column, lengths in _LENGTHS.items()
    for length in lengths
    for wave, function in (("sin", np.sin), ("cos", np.cos))
}
FROM_POSITIONS = (*EDGE_FEATURES, "z0", *WAVES)

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
    "z0": 100.0,
    **dict.fromkeys(WAVES, 0.7),
}

# acorn clamps dphi / dr to 100 in units of pi / 1000 mm.
PHISLOPE_LIMIT = 100.0 * math.pi / 1000.0  # rad/mm


def edge_columns(nodes: Mapping[str, Floats], edge_index: Ints) -> dict[str, Floats]:
    """Computes `EDGE_FEATURES` of edges [2, E], each [E], from node columns, as acorn does
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


def _with_waves(nodes: Mapping[str, Floats], edge_index: Ints) -> dict[str, Floats]:
    """Computes `FROM_POSITIONS` of edges [2, E], each [E]; z0 is clamped, and 0 if dr = 0."""
    columns = edge_columns(nodes, edge_index)
    inner_r, inner_z = (nodes[c][edge_index[0]] for c in ("r", "z"))
    dr, dz = columns["dr"], columns["dz"]
    with np.errstate(over="ignore"):  # of a tiny dr, clamped
        slope = np.divide(dz, dr, out=np.zeros_like(dr), where=dr != 0)
        z0 = np.where(dr != 0, np.clip(inner_z - inner_r * slope, -Z0_LIMIT, Z0_LIMIT), 0.0)
    columns["z0"] = z0
    for name, (function, column, factor) in WAVES.items():
        columns[name] = function(columns[column] * factor)
    return columns


def edge_table(
    nodes: Mapping[str, Floats], edge_index: Ints, chosen: Sequence[str] = EDGE_FEATURES
) -> Tensor:
    """Computes the `chosen` edge features, among `FROM_POSITIONS`, of edges [2, E] from node
    columns: [E, len(chosen)] float32.
    """
    n_edges = edge_index.shape[1]
    compute = edge_columns if set(chosen) <= {*EDGE_FEATURES} else _with_waves
    table = torch.empty(n_edges, len(chosen))
    for start in range(0, n_edges, AT_A_TIME):
        some = slice(start, start + AT_A_TIME)
        columns = compute(nodes, edge_index[:, some])
        table[some] = as_tensor({name: columns[name] for name in chosen})
    return table


def cluster_columns(hit_id: Ints, cells: Columns) -> dict[str, Floats]:
    """Computes CELL_FEATURES of hits [N]: cells, charge, and channels spanned; 0 if no cells."""
    n_hits = len(hit_id)
    order = np.argsort(hit_id, kind="stable")
    row = order[np.searchsorted(hit_id[order], cells["hit_id"].astype(np.int64))]
    count = np.bincount(row, minlength=n_hits)
    value = np.bincount(row, weights=cells["value"].astype(np.float64), minlength=n_hits)
    spans = np.zeros((2, n_hits))
    by_row = np.argsort(row, kind="stable")
    rows, start = np.unique(row[by_row], return_index=True)
    for span, channels in zip(spans, ("ch0", "ch1"), strict=True):
        channel = cells[channels].astype(np.int64)[by_row]
        highest = np.maximum.reduceat(channel, start)
        span[rows] = highest - np.minimum.reduceat(channel, start) + 1
    columns = (count, value, *spans)
    return {name: c.astype(np.float64) for name, c in zip(CELL_FEATURES, columns, strict=True)}


def as_tensor(columns: Mapping[str, Floats]) -> Tensor:
    """Stacks columns [rows] side by side, in order: [rows, len(columns)] float32."""
    return torch.from_numpy(np.stack(list(columns.values()), axis=1).astype(np.float32))


def available(names: Sequence[str]) -> list[str]:
    """Lists the usable node features: the stored `names`, and those computed from phi."""
    return [*names, *(FROM_PHI if "phi" in names else ())]


def available_edges(names: Sequence[str], node_names: Sequence[str]) -> list[str]:
    """Lists the usable edge features: stored `names`, and those computed from node positions."""
    from_positions = FROM_POSITIONS if {*POSITIONS} <= {*node_names} else ()
    return [*dict.fromkeys((*names, *from_positions))]


def normalised(
    features: Tensor,
    names: Sequence[str],
    scales: Mapping[str, Scale],
    chosen: Sequence[str],
    in_place: bool = False,
) -> Tensor:
    """Returns the columns `chosen` of features [rows, F], scaled: [rows, chosen]. InputError if a
    column or its scale is missing. in_place: may overwrite `features`, to save memory.
    """
    for name in chosen:
        if name not in available(names):
            raise InputError(f"graphs have no feature {name!r}; choose among {', '.join(names)}")
        if name not in scales:
            raise InputError(f"the feature {name!r} has no scale; choose among {', '.join(scales)}")
    divisors = [1.0 if isinstance(scale := scales[name], tuple) else scale for name in chosen]
    divided = uploaded(torch.tensor(divisors, dtype=features.dtype), features.device)
    if [*chosen] == [*names] and not any(isinstance(scales[name], tuple) for name in chosen):
        # At once, in a third of the time of column by column.
        return features.div_(divided) if in_place else features / divided
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
    """Raises InputError for a value not finite in the `chosen` columns of features [rows,
    len(names)]. what: the event, and "node" or "edge", for messages. ids [rows]: ids in the event.
    """
    if features.sum().isfinite():  # then all are finite: a tenth of the time of checking each
        return
    read = {*chosen, *(["phi"] if FROM_PHI.keys() & chosen else [])}
    for name in read.intersection(names):
        column = features[:, list(names).index(name)]
        for row in (~column.isfinite()).nonzero()[:1, 0].tolist():
            remedy = "correct this function" if names_code(name) else "build the graph again"
            raise InputError(
                f"{what} {int(ids[row])} has {name} = {float(column[row])}; {remedy}, or choose "
                f"features without {name}"
            )


Function = Callable[..., Tensor]
# Tolerance relative to the column's largest value: torch rounds the last rows differently.
_SAME = 1e-5


@dataclass(frozen=True)
class StoredColumns(Mapping[str, Tensor]):
    """Columns [M] by name, taken from features [R, len(names)] at `rows` [M], or at all if None.
    Reading a column copies it, so functions may change it.
    """

    features: Tensor
    names: tuple[str, ...]
    rows: Tensor | None = None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.names)}")
        column = self.features[:, self.names.index(name)]
        return column.clone() if self.rows is None else column[self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Tensor) -> "StoredColumns":
        return replace(self, rows=rows if self.rows is None else self.rows[rows])


@dataclass(frozen=True)
class Rows:
    """The nodes or edges of an event for which a function computes a column. what: the event, and
    "node" or "edge". inputs: the function's arguments. ids [M]: the rows' ids in the event.
    """

    what: str
    inputs: tuple[StoredColumns, ...]
    ids: Tensor

    def take(self, rows: Tensor) -> "Rows":
        inputs = tuple(columns.take(rows) for columns in self.inputs)
        return replace(self, inputs=inputs, ids=self.ids[rows])


def _rows_of(sector: Sector) -> tuple[Rows, Rows]:
    """Returns a sector's nodes and its edges as the inputs of feature functions."""
    nodes = StoredColumns(sector.node_features, sector.node_feature_names)
    edges = StoredColumns(sector.edge_features, sector.edge_feature_names)
    inputs = (edges, *(nodes.take(ends) for ends in sector.edge_index))
    return (
        Rows(f"{sector.event}: node", (nodes,), sector.node_id),
        Rows(f"{sector.event}: edge", inputs, sector.edge_id),
    )


def load_functions(chosen: Sequence[str], key: str) -> dict[str, Function]:
    """Imports the functions that `chosen` features name, by name. key: setting, for messages."""
    kind = "a function that takes columns and returns one"
    return {name: load_function(name, key, kind) for name in chosen if names_code(name)}


@dataclass(frozen=True)
class ComputedFeatures:
    """Adds features to sectors: users' functions, by name, and edge features from positions."""

    nodes: Mapping[str, Function]
    edges: Mapping[str, Function]
    of_positions: Sequence[str] = ()

    def of(self, sector: Sector) -> Sector:
        """Adds the columns that the sector lacks; InputError if a function returns bad values."""
        sector = self._with_positions(sector)
        node_names, edge_names = sector.node_feature_names, sector.edge_feature_names
        nodes = {name: made for name, made in self.nodes.items() if name not in node_names}
        edges = {name: made for name, made in self.edges.items() if name not in edge_names}
        if not nodes and not edges:
            return sector
        of_nodes, of_edges = _rows_of(sector)
        return replace(
            sector,
            node_features=with_columns(sector.node_features, nodes, of_nodes),
            node_feature_names=(*node_names, *nodes),
            edge_features=with_columns(sector.edge_features, edges, of_edges),
            edge_feature_names=(*edge_names, *edges),
        )

    def _with_positions(self, sector: Sector) -> Sector:
        """Adds the edge features that the sector lacks, if its nodes have positions."""
        stored, columns = sector.edge_feature_names, sector.node_feature_names
        missing = [name for name in self.of_positions if name not in stored]
        if not missing or not {*columns} >= {*POSITIONS}:
            return sector
        places = (sector.node_features[:, columns.index(name)].double() for name in POSITIONS)
        nodes, edges = with_eta(*(p.numpy() for p in places)), sector.edge_index.numpy()
        added = edge_table(nodes, edges, missing)
        features = torch.cat([sector.edge_features, added], dim=1)
        return replace(sector, edge_features=features, edge_feature_names=(*stored, *missing))

    def check_by_row(self, sector: Sector) -> None:
        """Raises InputError if a function's value at a row depends on other rows."""
        sector = self._with_positions(sector)
        for functions, rows in zip((self.nodes, self.edges), _rows_of(sector), strict=True):
            for name, function in functions.items():
                _check_by_row(name, function, rows)


def with_columns(features: Tensor, functions: Mapping[str, Function], rows: Rows) -> Tensor:
    """Appends the column of each function to `features`: [M, F] -> [M, F + functions]."""
    columns = [_column(name, function, rows) for name, function in functions.items()]
    return torch.cat([features, *(column[:, None] for column in columns)], dim=1)


def _column(name: str, function: Function, rows: Rows) -> Tensor:
    """Calls a function for one column, [M] float32; InputError if it returns anything else."""
    with torch.no_grad(), users_errors(f"{rows.what}s: feature {name} fails"):
        made = function(*rows.inputs)
    n_rows, gives = len(rows.ids), f"{rows.what}s: feature {name} gives"
    if not isinstance(made, Tensor) or list(made.shape) != [n_rows]:
        told = f"shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise InputError(
            f"{gives} {told} for {n_rows} rows; return a tensor of shape [{n_rows}], one number "
            f"per row"
        )
    if made.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{gives} {made.dtype}; return float32, as .float() makes it")
    column = made.to("cpu", torch.float32)
    check_finite(rows.what, [name], column[:, None], [name], rows.ids)
    return column


def _check_by_row(name: str, function: Function, rows: Rows) -> None:
    """Raises InputError unless a function gives the same for some rows as for all rows at once."""
    whole = _column(name, function, rows)
    largest = float(whole.abs().max()) if len(whole) else 0.0
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    for some in (order[::2], order[1::2], order[:1], order[:0]):
        made = _column(name, function, rows.take(some))
        if not torch.allclose(made, whole[some], rtol=0, atol=_SAME * largest):
            raise InputError(
                f"{rows.what}s: feature {name} depends on other rows, so it would change when a "
                "graph is cut; compute each row from its own columns (to use sums, means or ranks "
                "over rows, store them in the graph)"
            )
