"""Event graphs, with hits as nodes and doublets as edges; their sectors; and the true edges that a
training should find, which are derived when a graph is read.

Shapes used throughout: N nodes, E edges, F node features, G edge features, P particles.

An EventGraph's node_features and edge_features are the x [N, F] and edge_attr [E, G] of PyG's Data.
The others have the same names in both; a Data holds particles as a dictionary of their columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bigtrk.config import Settings
from bigtrk.errors import InputError

Section = dict[str, Tensor]  # tensors by name, stored together

if TYPE_CHECKING:
    from torch_geometric.data import Data

# Name -> type, and a letter for each dimension: N nodes, E edges, F and G features of them, P
# particles, S rows sent; a digit stands for itself.
Layout = dict[str, tuple[torch.dtype, str]]

LABELS: Layout = {
    "y": (torch.bool, "E"),
    "hit_id": (torch.int64, "N"),
    "particle_id": (torch.int64, "N"),
    "hit_weight": (torch.float64, "N"),
    "modules": (torch.int64, "N3"),
}
FEATURES: Layout = {
    "node_features": (torch.float32, "NF"),
    "edge_features": (torch.float32, "EG"),
}
GRAPH: Layout = {**FEATURES, "edge_index": (torch.int64, "2E"), **LABELS}
SECTOR: Layout = {
    **FEATURES,
    "edge_index": (torch.int32, "2E"),
    "node_id": (torch.int32, "N"),
    "edge_id": (torch.int32, "E"),
    "send_index": (torch.int32, "S"),
    **LABELS,
}
PARTICLES: Layout = {
    "particle_id": (torch.int64, "P"),
    "pt": (torch.float32, "P"),
    "eta": (torch.float32, "P"),
    "vertex": (torch.float32, "P3"),
    "nhits": (torch.int64, "P"),
}
_REMEDY = "correct or remake the data"


def check_columns(content: Section, layout: Layout, sizes: dict[str, int], where: str) -> None:
    """Raises InputError if tensors differ from `layout`; LABELS may be absent. sizes: by name."""
    labels = LABELS.keys() if layout is not PARTICLES else set()
    wrong = (layout.keys() - labels - content.keys()) | (content.keys() - layout.keys())
    for name in sorted(wrong)[:1]:
        told = "unknown" if name in content else "missing"
        raise InputError(f"{where}: array {name!r} is {told}; {_REMEDY}")
    sizes = dict(sizes)
    for name, tensor in content.items():
        dtype, dims = layout[name]
        shape, wanted = tuple(tensor.shape), f"[{', '.join(dims)}]"
        if tensor.dtype != dtype or len(shape) != len(dims):
            raise InputError(
                f"{where}: {name!r} is {tensor.dtype} of shape {shape}, but must be {dtype} of "
                f"shape {wanted}; {_REMEDY}"
            )
        for dim, size in zip(dims, shape, strict=True):
            expected = int(dim) if dim.isdigit() else sizes.setdefault(dim, size)
            if size != expected:
                told = wanted if dim.isdigit() else f"{wanted} with {dim} = {expected}"
                raise InputError(f"{where}: {name!r} has shape {shape}, not {told}; {_REMEDY}")


def check_particles(content: Section, where: str) -> None:
    """Raises InputError if a particle table has wrong columns, or lists a particle twice."""
    check_columns(content, PARTICLES, {}, where)
    ids, counts = content["particle_id"].unique(return_counts=True)
    for twice in ids[counts > 1][:1].tolist():
        raise InputError(f"{where}: particle {twice} is listed twice; {_REMEDY}")


def check_rows(index: Tensor, n: int, where: str) -> None:
    """Raises InputError if an index tensor, of any shape, has values outside 0 to `n` - 1."""
    if index.numel() == 0:
        return
    low, high = (int(value) for value in torch.aminmax(index))
    if low < 0 or high >= n:
        raise InputError(
            f"{where} has values {low} to {high}, but must be at least 0 and below {n}; {_REMEDY}"
        )


def once(known: set[str], what: str, check: Callable[[], object]) -> None:
    """Runs `check`, which raises on failure, unless `known` lists `what`; then lists it."""
    if what not in known:
        check()
        known.add(what)


IN_ORDER = "edges are in order"
AT_A_TIME = 1 << 20  # edges that are compared, or whose features are computed, at a time: 150 MB


def second_ways(edge_index: Tensor, node_id: Tensor, y: Tensor) -> Tensor:
    """Marks edges to a lower node whose reverse has the same label: [2, E], [N], [E] -> [E]."""
    source, destination = node_id[edge_index.long()]
    second: Tensor = source > destination
    rows = second.nonzero().squeeze(1)
    if not len(rows):
        return second
    width = int(node_id.max()) + 1
    there = np.sort(((destination * width + source) * 2 + y)[~second].numpy())
    for some in rows.split(AT_A_TIME):  # all at once would take three times the bytes of `there`
        wanted = ((source[some] * width + destination[some]) * 2 + y[some]).numpy()
        place = np.searchsorted(there, wanted).clip(max=max(len(there) - 1, 0))
        second[some] = torch.from_numpy(there[place] == wanted) if len(there) else False
    return second


# eq=False, here and for sectors: == of tensors gives a tensor, not True or False.
@dataclass(frozen=True, eq=False)
class ParticleTable:
    """The particles of one event.

    particle_id [P] int64, pt [P] float32 (GeV), eta [P] float32, vertex [P, 3] float32 (mm),
    nhits [P] int64 (hits of the particle in this event, in the graph or not).
    """

    particle_id: Tensor
    pt: Tensor
    eta: Tensor
    vertex: Tensor
    nhits: Tensor

    def rows_of(self, particle_id: Tensor) -> Tensor:
        """Returns the row of each id, -1 where the table lacks it: [M] int64 -> [M] int64."""
        if self.particle_id.numel() == 0:
            return torch.full_like(particle_id, -1)
        order = self.particle_id.argsort()
        position = torch.searchsorted(self.particle_id[order], particle_id)
        row = order[position.clamp(max=len(order) - 1)]
        return torch.where(self.particle_id[row] == particle_id, row, -1)


@dataclass(frozen=True, eq=False)
class EventGraph:
    """One event's graph. Features are in mm and rad, not normalised.

    node_features [N, F] float32, edge_features [E, G] float32, in the order of their names.
    edge_index [2, E] int64: row 0 the inner hit (source), row 1 the outer hit (destination). y [E]
    bool: the edge joins consecutive hits of one particle. hit_id [N] int64, particle_id [N] int64
    (0: noise), hit_weight [N] float64 (TrackML weight), modules [N, 3] int64 (volume, layer and
    module of the hit). A field is None if the source of the graph does not give it.
    """

    name: str
    node_feature_names: tuple[str, ...]
    edge_feature_names: tuple[str, ...]
    node_features: Tensor
    edge_index: Tensor
    edge_features: Tensor
    y: Tensor | None = None
    hit_id: Tensor | None = None
    particle_id: Tensor | None = None
    hit_weight: Tensor | None = None
    modules: Tensor | None = None
    particles: ParticleTable | None = None

    @property
    def n_nodes(self) -> int:
        return self.node_features.shape[0]

    @property
    def n_edges(self) -> int:
        return self.edge_index.shape[1]

    def take_edges(self, rows: Tensor) -> "EventGraph":
        """Returns the graph with only the chosen edges. rows: int64 indices or a mask [E]."""
        return replace(
            self,
            edge_index=self.edge_index[:, rows],
            edge_features=self.edge_features[rows],
            y=None if self.y is None else self.y[rows],
        )

    @classmethod
    def from_pyg(
        cls,
        data: "Data",
        name: str | None = None,
        node_feature_names: Sequence[str] = (),
        edge_feature_names: Sequence[str] = (),
    ) -> "EventGraph":
        """Makes a graph from PyTorch Geometric's Data: x [N, F], edge_index [2, E] int64 and, if
        known, edge_attr [E, G], y [E] (of edges: 0 or 1), hit_id, particle_id, hit_weight, modules
        and particles, as `to_pyg` gives them. The graph shares the tensors of `data`.

        The graph is called `name`, or else data.name. Columns have the names given, or else those
        in data.node_feature_names and data.edge_feature_names, or else x0, x1, ... and e0, e1, ...
        Features of other floating types are rounded to float32 and other attributes left out;
        labels become bool. Warnings on stderr say so, and also warn of edges in both directions,
        and of columns called r, phi or z that cannot be in mm or rad.

        Raises:
            InputError: an attribute is missing, of another type or shape, or not finite, edges end
                outside of the nodes, or y labels nodes.
        """
        from torch_geometric.data import Batch, Data

        from bigtrk.graphs.pyg_data import from_data

        if isinstance(data, Batch) or not isinstance(data, Data):
            where = name or getattr(data, "name", "data")
            raise InputError(
                f"{where}: is a {type(data).__name__}, not the Data of one graph; convert a batch "
                f"by to_data_list(), and a HeteroData by to_homogeneous()"
            )
        return from_data(data.to_dict(), name, node_feature_names, edge_feature_names)

    def to_pyg(self) -> "Data":
        """Returns the graph as PyTorch Geometric's Data, which `from_pyg` reads back bit for bit:
        x [N, F], edge_index [2, E], edge_attr [E, G] (if there are edge features), y [E], labels of
        hits and particles where they are known, and the names of the event and of columns. It
        shares the graph's tensors.
        """
        from torch_geometric.data import Data

        columns = {name: getattr(self, name) for name in LABELS}
        known = {name: column for name, column in columns.items() if column is not None}
        if self.edge_feature_names:
            known["edge_attr"] = self.edge_features
        if self.particles is not None:
            known["particles"] = {name: getattr(self.particles, name) for name in PARTICLES}
        return Data(
            x=self.node_features,
            edge_index=self.edge_index,
            name=self.name,
            node_feature_names=list(self.node_feature_names),
            edge_feature_names=list(self.edge_feature_names),
            **known,
        )


@dataclass(frozen=True, eq=False)
class Sector:
    """Part `part` of an event cut into `parts`; a whole graph is part 0 of 1.

    Nodes: the `n_owned` owned ones first, ascending by node id, then the halo, ascending by (owner,
    node id). Edges: those among owned nodes first, then cut edges, each block sorted by
    (destination, source) in the event's node ids. A cut edge lies in both sectors it touches.

    node_id [N], edge_id [E] int64: positions in the event. owns_edge [E] bool: true in exactly one
    sector per edge, the one that owns its destination. send_index [S] int64: the owned rows that
    other sectors asked for, grouped by receiver. `send_splits` counts them for each part;
    `recv_splits` counts this sector's halo rows by owner. Other fields are those of EventGraph,
    restricted to this sector; edge_index holds local rows.
    """

    event: str
    part: int
    parts: int
    n_owned: int
    node_feature_names: tuple[str, ...]
    edge_feature_names: tuple[str, ...]
    event_nodes: int
    event_edges: int
    node_features: Tensor
    edge_index: Tensor
    edge_features: Tensor
    node_id: Tensor
    edge_id: Tensor
    owns_edge: Tensor
    send_index: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]
    y: Tensor | None = None
    hit_id: Tensor | None = None
    particle_id: Tensor | None = None
    hit_weight: Tensor | None = None
    modules: Tensor | None = None
    particles: ParticleTable | None = None

    @property
    def n_nodes(self) -> int:
        return self.node_features.shape[0]

    @property
    def n_edges(self) -> int:
        return self.edge_index.shape[1]

    @cached_property
    def known(self) -> set[str]:
        """Names of the checks that its file has passed, if any; empty for a changed copy."""
        return set()

    def of_file(self, known: set[str]) -> "Sector":
        """Sets `known` to the file's set of passed checks, shared, and returns this sector."""
        vars(self)["known"] = known
        return self


def columns_at(
    wholes: Sequence[EventGraph | Sector], nodes: Tensor, edges: Tensor
) -> dict[str, Any]:
    """Returns known features and labels, by name, at rows of the concatenated graphs or sectors."""
    found = {}
    for name in (*FEATURES, *LABELS):
        columns = [getattr(whole, name) for whole in wholes]
        if columns[0] is not None:
            rows = edges if GRAPH[name][1].startswith("E") else nodes
            column = columns[0] if len(columns) == 1 else torch.cat(columns)
            found[name] = column.index_select(0, rows)
    return found


def is_ordered(edge_index: Tensor) -> bool:
    """True if edges [2, E] ascend by (destination, source); equal edges are allowed."""
    for start in range(0, edge_index.shape[1] - 1, AT_A_TIME):
        source, destination = edge_index[:, start : start + AT_A_TIME + 1]
        rises = destination[1:] > destination[:-1]
        rises |= (destination[1:] == destination[:-1]) & (source[1:] >= source[:-1])
        if not rises.all():
            return False
    return True


def edge_order(edge_index: Tensor, n_nodes: int) -> Tensor:
    """Returns the permutation that sorts edges by (destination, source): [2, E] -> [E]."""
    if is_ordered(edge_index):
        return torch.arange(edge_index.shape[1])
    key = torch.add(edge_index[0], edge_index[1], alpha=max(n_nodes, 1))
    return torch.argsort(key, stable=True)


def whole_sector(graph: EventGraph, known: set[str] | None = None) -> Sector:
    """Returns a whole graph as the only sector of a cut into one. Tensors are shared if edges are
    sorted as in a sector. known: names of the checks that the graph's file has passed.
    """
    known = set() if known is None else known
    if IN_ORDER in known or is_ordered(graph.edge_index):
        known.add(IN_ORDER)
        order = torch.arange(graph.n_edges)
    else:
        order = edge_order(graph.edge_index, graph.n_nodes)
        graph = graph.take_edges(order)
    columns = {**vars(graph)}
    return Sector(
        event=columns.pop("name"),
        part=0,
        parts=1,
        n_owned=graph.n_nodes,
        event_nodes=graph.n_nodes,
        event_edges=graph.n_edges,
        node_id=torch.arange(graph.n_nodes),
        edge_id=order,
        owns_edge=torch.ones(graph.n_edges, dtype=torch.bool),
        send_index=torch.empty(0, dtype=torch.int64),
        send_splits=(0,),
        recv_splits=(0,),
        **columns,
    ).of_file(known)


def empty_sector(
    node_feature_names: tuple[str, ...], edge_feature_names: tuple[str, ...]
) -> Sector:
    """Returns a sector without nodes, for a rank that has no event in a micro-step."""
    names = (node_feature_names, edge_feature_names)
    nodes, edges = (torch.empty(0, len(columns)) for columns in names)
    no_edges, y = torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.bool)
    return whole_sector(EventGraph("", *names, nodes, no_edges, edges, y=y))


class Target(Settings):
    """The true edges that a training should find, by default all. Metrics depend on the target, but
    not on the weights of edges.
    """

    pt_min: float = Field(0.0, ge=0)
    """Smallest pT of a target's particle. Above 0, an unknown pT is in no target [GeV]."""
    hits_min: int = Field(0, ge=0, lt=2**31)
    """Fewest hits of a target's particle [hits]."""
    eta_max: float | None = Field(None, gt=0)
    """Largest |eta| of a target's particle; by default any."""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Weight of a target edge in the loss; a false edge has 1."""
    other_weight: float = Field(0.0, allow_inf_nan=False)
    """Weight of the other true edges. 0 leaves them out; a negative weight trains them as false."""


def edge_weights(y: Tensor, is_target: Tensor, target: Target) -> Tensor:
    """Returns each edge's weight in the loss: y, is_target [E] bool -> [E] float32."""
    of_true = torch.where(is_target, target.weight, target.other_weight)
    return torch.where(y, of_true, 1.0)


def target_edges(
    y: Tensor,
    edge_index: Tensor,
    particle_id: Tensor | None,
    particles: ParticleTable | None,
    target: Target,
) -> Tensor:
    """Marks the true edges whose particle is in the target: y [E] bool, edge_index [2, E],
    particle_id [N] -> [E] bool. InputError if `target` selects by particle and the graph has no
    particles.
    """
    takes_all = target.pt_min == 0 and target.hits_min == 0 and target.eta_max is None
    if takes_all or y.numel() == 0:
        return y
    if particle_id is None or particles is None:
        raise InputError(
            "the graph has no particle ids or no particle table, so its edges cannot be selected "
            "by target; set target.pt_min=0 target.hits_min=0 (and no target.eta_max) to train on "
            "all true edges"
        )
    wanted = particles.nhits >= target.hits_min
    if target.pt_min > 0:
        wanted &= particles.pt >= target.pt_min
    if target.eta_max is not None:
        wanted &= particles.eta.abs() <= target.eta_max
    row = particles.rows_of(particle_id[edge_index[1, y]])
    chosen = y.clone()
    # The index -1 (not in the table) selects a spare last row, never a target.
    chosen[y] = torch.cat([wanted, torch.tensor([False])])[row]
    return chosen


def edge_pt(
    y: Tensor, edge_index: Tensor, particle_id: Tensor | None, particles: ParticleTable | None
) -> Tensor:
    """Returns the pT of each edge's particle in GeV: [E] float32; NaN if false or unknown."""
    found = torch.full(y.shape, torch.nan)
    if particle_id is None or particles is None:
        return found
    row = particles.rows_of(particle_id[edge_index[1, y]])
    # The index -1 (not in the table) selects a spare last row.
    pt = torch.cat([particles.pt, particles.pt.new_tensor([torch.nan])])[row]
    found[y] = torch.where((pt > 0) & pt.isfinite(), pt, torch.nan)
    return found
