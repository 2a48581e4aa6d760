"""Features computed from the stored columns: by functions of users' own, and those of edges that
stored graphs lack, from the positions of their nodes.

A function of nodes is called with their columns, one of edges with theirs and those of the nodes
that they leave and reach, each by name. It gives one number for each row, from that row alone.

Shapes: M rows, N of nodes or E of edges.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bigtrk.errors import InputError, reason
from bigtrk.graphs.features import EDGE_FEATURES, POSITIONS, check_finite, edge_table, with_eta
from bigtrk.graphs.sector import Sector
from bigtrk.user_code import load_code, names_code, no_exit

Function = Callable[..., Tensor]
# The largest change, relative to the column's largest value, of what rows alone give: torch's
# kernels round the last few rows of a tensor in another way than the others.
_SAME = 1e-5


@dataclass(frozen=True)
class StoredColumns(Mapping[str, Tensor]):
    """Columns [M] by name, copied when they are asked for, so that functions may change them.
    features [R, len(names)], rows [M]: the place of each row among these; all without it.
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
    """Rows of an event that functions compute a column of. what: the event, and "node" or "edge".
    inputs: a function's arguments. ids [M]: the rows' numbers in the event.
    """

    what: str
    inputs: tuple[StoredColumns, ...]
    ids: Tensor

    def take(self, rows: Tensor) -> "Rows":
        inputs = tuple(columns.take(rows) for columns in self.inputs)
        return replace(self, inputs=inputs, ids=self.ids[rows])


def _rows_of(sector: Sector) -> tuple[Rows, Rows]:
    """Gives the nodes and the edges of a sector as functions read them."""
    nodes = StoredColumns(sector.node_features, sector.node_feature_names)
    edges = StoredColumns(sector.edge_features, sector.edge_feature_names)
    inputs = (edges, *(nodes.take(ends) for ends in sector.edge_index))
    return (
        Rows(f"{sector.event}: node", (nodes,), sector.node_id),
        Rows(f"{sector.event}: edge", inputs, sector.edge_id),
    )


def load_functions(chosen: Sequence[str], key: str) -> dict[str, Function]:
    """Imports the functions among the features `chosen`, by name; `key` is the configuration's.

    Raises:
        InputError: one cannot be imported (`load_code`), or is no function.
    """
    functions = {name: load_code(name, key) for name in chosen if names_code(name)}
    for name, function in functions.items():
        if not callable(function):
            kind = type(function).__name__
            raise InputError(
                f"{key}={name}: is a {kind}; name a function that takes columns and gives one"
            )
    return functions


@dataclass(frozen=True)
class ComputedFeatures:
    """The functions of users' own among the features that a model reads, by name, and those of
    edges that positions give where a graph does not store them.
    """

    nodes: Mapping[str, Function]
    edges: Mapping[str, Function]
    of_positions: Sequence[str] = ()

    def of(self, sector: Sector) -> Sector:
        """Adds the columns that functions compute or positions give and that the sector lacks.

        Raises:
            InputError: a function fails, or gives anything but a finite number for each row.
        """
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
        """Adds the features of edges that the sector lacks, where its nodes have positions."""
        stored, columns = sector.edge_feature_names, sector.node_feature_names
        missing = [name for name in self.of_positions if name not in stored]
        if not missing or not {*columns} >= {*POSITIONS}:
            return sector
        places = (sector.node_features[:, columns.index(name)].double() for name in POSITIONS)
        table = edge_table(with_eta(*(p.numpy() for p in places)), sector.edge_index.numpy())
        added = table[:, [EDGE_FEATURES.index(name) for name in missing]]
        features = torch.cat([sector.edge_features, added], dim=1)
        return replace(sector, edge_features=features, edge_feature_names=(*stored, *missing))

    def check_by_row(self, sector: Sector) -> None:
        """Checks that functions compute each row from it alone.

        Raises:
            InputError: as `of`, or some rows alone give other values than among all.
        """
        sector = self._with_positions(sector)
        for functions, rows in zip((self.nodes, self.edges), _rows_of(sector), strict=True):
            for name, function in functions.items():
                _check_by_row(name, function, rows)


def with_columns(features: Tensor, functions: Mapping[str, Function], rows: Rows) -> Tensor:
    """Appends the columns that `functions` compute of `rows`: [M, F] -> [M, F + functions]."""
    columns = [_column(name, function, rows) for name, function in functions.items()]
    return torch.cat([features, *(column[:, None] for column in columns)], dim=1)


def _column(name: str, function: Function, rows: Rows) -> Tensor:
    """Computes one column, [M] float32."""
    try:
        with torch.no_grad(), no_exit():
            made = function(*rows.inputs)
    except Exception as error:
        raise InputError(
            f"{rows.what}s: feature {name} fails ({type(error).__name__}: {reason(error)}); mend it"
        ) from error
    n_rows, gives = len(rows.ids), f"{rows.what}s: feature {name} gives"
    if not isinstance(made, Tensor) or list(made.shape) != [n_rows]:
        told = f"shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise InputError(
            f"{gives} {told} for {n_rows} rows; return a tensor of shape [{n_rows}], a number for "
            f"each"
        )
    if made.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{gives} {made.dtype}; return float32, as .float() makes it")
    column = made.to("cpu", torch.float32)
    check_finite(rows.what, [name], column[:, None], [name], rows.ids)
    return column


def _check_by_row(name: str, function: Function, rows: Rows) -> None:
    """Compares what the halves of the rows, one row and none give with what all give."""
    whole = _column(name, function, rows)
    largest = float(whole.abs().max()) if len(whole) else 0.0
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    for some in (order[::2], order[1::2], order[:1], order[:0]):
        made = _column(name, function, rows.take(some))
        if not torch.allclose(made, whole[some], rtol=0, atol=_SAME * largest):
            raise InputError(
                f"{rows.what}s: feature {name} gives some rows other values alone than among the "
                f"others, so a cut would change them; compute each row from it alone (sums, means "
                f"and ranks over rows can be stored in the graph)"
            )
