"""An event as a graph: hits are nodes, doublets are edges; its layout, and PyG's `Data`.

Shapes used throughout: N nodes, E edges, F node features, G edge features, P particles.

An EventGraph's node_features and edge_features are the x [N, F] and edge_attr [E, G] of a Data. The
others have the same names in both; a Data holds particles as a dictionary of their columns.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.errors import InputError, one_line

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


def check_columns(content: Section, layout: Layout, sizes: dict[str, int], where: str) -> None:
    """Refuses tensors that do not follow `layout`, of which only `LABELS` may be absent.

    sizes: the known sizes by letter; the others need only agree.
    """
    labels = LABELS.keys() if layout is not PARTICLES else set()
    wrong = (layout.keys() - labels - content.keys()) | (content.keys() - layout.keys())
    if wrong:
        raise InputError(f"{where}: {min(wrong)!r} is missing or unknown; make the file again")
    sizes = dict(sizes)
    for name, tensor in content.items():
        dtype, dims = layout[name]
        shape, wanted = tuple(tensor.shape), f"[{', '.join(dims)}]"
        if tensor.dtype != dtype or len(shape) != len(dims):
            raise InputError(
                f"{where}: {name} is {tensor.dtype} {shape}, not {dtype} {wanted}; make the file "
                f"again"
            )
        for dim, size in zip(dims, shape, strict=True):
            expected = int(dim) if dim.isdigit() else sizes.setdefault(dim, size)
            if size != expected:
                raise InputError(
                    f"{where}: {name} has shape {shape}, which makes {size} and not {expected} for "
                    f"the {dim} of {wanted}; make the file again"
                )


def check_particles(content: Section, where: str) -> None:
    """Refuses columns that are no table of particles, each of which is listed once."""
    check_columns(content, PARTICLES, {}, where)
    ids, counts = content["particle_id"].unique(return_counts=True)
    for twice in ids[counts > 1][:1].tolist():
        raise InputError(f"{where}: particle {twice} is listed twice; make the file again")


def check_rows(index: Tensor, rows: int, where: str) -> None:
    """Refuses an index of any shape that leads outside `rows` rows."""
    if index.numel() == 0:
        return
    lowest, highest = (int(value) for value in torch.aminmax(index))
    if lowest < 0 or highest >= rows:
        raise InputError(
            f"{where} runs from {lowest} to {highest}, but there are {rows} rows; "
            "make the file again"
        )


AT_A_TIME = 1 << 20  # edges that are compared, or whose features are computed, at a time: 150 MB


def second_ways(edge_index: Tensor, node_id: Tensor, y: Tensor) -> Tensor:
    """Marks the edges to a lower node whose reverse is there with the same label: [E] bool.

    edge_index [2, E]: rows of node_id [N], numbers in the event. y [E] bool: labels.
    """
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


# Here and in sectors == is identity: that of tensors is no truth value.
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
    edge_index [2, E] int64: row 0 the inner hit (source), row 1 the outer hit (destination).
    y [E] bool: the edge joins consecutive hits of one particle. hit_id [N] int64, particle_id [N]
    int64 (0: noise), hit_weight [N] float64 (TrackML weight), modules [N, 3] int64 (volume, layer
    and module of the hit). A field that the source of the graph does not know is None.
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
        """Returns the graph with some of its edges: rows, int64 or a mask [E]."""
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
        """Makes a graph of PyTorch Geometric's Data: x [N, F], edge_index [2, E] int64 and, where
        they are known, edge_attr [E, G], y [E] (of edges: 0 or 1), hit_id, particle_id, hit_weight,
        modules and particles, as `to_pyg` gives them. It shares their tensors.

        The graph is called `name`, or else data.name. Columns have the names given, or else those
        in data.node_feature_names and data.edge_feature_names, or else x0, x1, ... and e0, e1, ...
        Features of other floating types are rounded to float32 and other attributes left out;
        labels become bool. Warnings on stderr say this, and where edges are there in both
        directions or columns called r, phi or z cannot be in mm or rad.

        Raises:
            InputError: an attribute is missing, of another type or shape, or not finite, edges end
                outside of the nodes, or y labels nodes.
        """
        from torch_geometric.data import Batch, Data

        if isinstance(data, Batch) or not isinstance(data, Data):
            where = name or getattr(data, "name", "this")
            raise InputError(
                f"{where}: is a {type(data).__name__}, not the Data of one graph; give those of "
                f"batch.to_data_list() one by one, or hetero_data.to_homogeneous()"
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


# Attributes of a Data that a graph has under the same name and in the same layout.
_AS_THEY_ARE = {name: GRAPH[name] for name in GRAPH if name not in {*FEATURES, "y"}}
_TENSORS = {"x", "edge_attr", "y", *_AS_THEY_ARE}
_KEPT = {*_TENSORS, "name", "node_feature_names", "edge_feature_names", "particles"}
SMALLEST = 10.0  # mm, a radius or half-length that no detector falls below
MOST_PHI = 2.0 * math.pi + 1e-3  # rad, from -pi to pi or from 0 to 2 pi


def from_data(
    columns: Mapping[str, Any],
    name: str | None,
    node_names: Sequence[str],
    edge_names: Sequence[str],
    where: str | None = None,
) -> EventGraph:
    """Makes the graph `name`, or columns["name"], of a Data's columns, as EventGraph.from_pyg says.

    where: the file that it is from, for messages.
    """
    content = {key: value for key, value in columns.items() if value is not None}
    name = name or content.get("name")
    if not isinstance(name, str):
        raise InputError("a Data without a name; give from_pyg the graph's")
    where = where or name
    _check_tensors(content, where)
    x, x_names = _columns(content, "x", node_names, where)
    known = {key: content[key] for key in _AS_THEY_ARE if key in content}
    check_columns(known, _AS_THEY_ARE, {"N": len(x)}, where)
    n_edges = known["edge_index"].shape[1]
    check_rows(known["edge_index"], len(x), f"{where}: edge_index")
    edge_attr, edge_attr_names = torch.empty(n_edges, 0), tuple(edge_names)
    if "edge_attr" in content or edge_names:
        edge_attr, edge_attr_names = _columns(content, "edge_attr", edge_names, where)
    if len(edge_attr) != n_edges:
        raise InputError(
            f"{where}: edge_attr has {len(edge_attr)} rows for {n_edges} edges; correct it"
        )
    y = _labels(content["y"], len(x), n_edges, where) if "y" in content else None
    particles = content.get("particles")
    if particles is not None:
        if not isinstance(particles, dict) or {type(one) for one in particles.values()} != {Tensor}:
            raise InputError(
                f"{where}: particles is {_kind(particles)}, not tensors by name; leave it out"
            )
        check_particles(particles, f"{where}, particles")
    graph = EventGraph(
        name=name,
        node_feature_names=x_names,
        edge_feature_names=edge_attr_names,
        node_features=x,
        edge_features=edge_attr,
        y=y,
        particles=None if particles is None else ParticleTable(**particles),
        **known,
    )
    _warn_of_units_and_directions(graph, where)
    return graph


def _check_tensors(content: Mapping[str, Any], where: str) -> None:
    for name in ("x", "edge_index"):
        if name not in content:
            raise InputError(f"{where}: has no {name}; a graph has x [N, F] and edge_index [2, E]")
    for name in sorted(_TENSORS & content.keys()):
        value = content[name]
        # A subclass, such as EdgeIndex, has ways of its own to compute.
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_nested:
            raise InputError(f"{where}: {name} is {_kind(value)}; make it a plain dense tensor")
        if value.requires_grad or value.device.type != "cpu":
            raise InputError(
                f"{where}: {name} has gradients or is on a device; give {name}.detach().cpu()"
            )
    if others := [one_line(str(key)) for key in content if key not in _KEPT]:
        warn_once("attributes", f"{where}: {', '.join(others)}: left out, a graph has no place")


def _columns(
    content: Mapping[str, Any], key: str, given: Sequence[str], where: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Returns the features `key` in float32, and the names of their columns."""
    if key not in content:
        raise InputError(f"{where}: has no {key}, whose columns are to be named {', '.join(given)}")
    features = content[key]
    if features.dim() != 2 or not features.is_floating_point():
        raise InputError(
            f"{where}: {key} is {_kind(features)}, not floats [rows, columns]; make it so"
        )
    stored, count = "node_feature_names" if key == "x" else "edge_feature_names", features.shape[1]
    names = list(given) or content.get(stored, [f"{key[0]}{column}" for column in range(count)])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: {stored} is {_kind(names)}, not a list of names; make it one")
    for name in names:
        if not name or name != one_line(name) or names.count(name) > 1:
            raise InputError(
                f"{where}: column name {one_line(repr(name))} is empty, unprintable or given "
                f"twice; change it"
            )
    if len(names) != count:
        raise InputError(
            f"{where}: {key} has {count} columns, but there are {len(names)} names; name each"
        )
    if features.dtype is not torch.float32:
        warn_once(key, f"{where}: {key} is {features.dtype} and is rounded to float32")
    single = features.float()
    for row, column in (~single.isfinite()).nonzero()[:1].tolist():
        raise InputError(
            f"{where}: {key}, row {row}, column {names[column]} is {float(features[row, column])}; "
            f"make it finite"
        )
    return single, tuple(names)


def _labels(y: Tensor, n_nodes: int, n_edges: int, where: str) -> Tensor:
    """Returns the label of each edge, [E] bool."""
    if y.shape != (n_edges,):
        if y.dim() and len(y) == n_nodes:
            raise InputError(
                f"{where}: y labels the {n_nodes} nodes, and bigtrk learns which edges join hits "
                f"of one particle; give y of each edge, and nodes their particle_id"
            )
        raise InputError(
            f"{where}: y is {_kind(y)}, not [{n_edges}], a label of each edge; make it so"
        )
    for edge in ((y != 0) & (y != 1)).nonzero()[:1, 0].tolist():
        raise InputError(
            f"{where}: y, edge {edge} is {y[edge].item()}, neither 0 nor 1; correct it"
        )
    return y == 1


def _warn_of_units_and_directions(graph: EventGraph, where: str) -> None:
    """Warns of columns with names of bigtrk's own whose values are too small for a detector in mm,
    or too large for rad, and of edges in both directions.
    """
    if graph.n_nodes:
        largest = graph.node_features.abs().amax(0).tolist()
        most = dict(zip(graph.node_feature_names, largest, strict=True))
        odd = [name for name in ("r", "z") if most.get(name, SMALLEST) < SMALLEST]
        for name in odd or [name for name in ("phi",) if most.get(name, 0.0) > MOST_PHI]:
            warn_once(
                "units",
                f"{where}: {name} is at most {most[name]:.3g}, as if x were scaled, and bigtrk "
                f"reads r, phi and z in mm and rad; give them so, or other names to the columns",
            )
    node_id, alike = torch.arange(graph.n_nodes), torch.zeros(graph.n_edges, dtype=torch.bool)
    y = alike if graph.y is None else graph.y
    second = int(second_ways(graph.edge_index, node_id, y).sum())
    unlike = int(second_ways(graph.edge_index, node_id, alike).sum()) - second
    there = f"of {graph.n_edges} edges are there in the other direction, too"
    if unlike:
        warn_once(
            "both ways, unlike",
            f"{where}: {unlike} {there}, with another label; keep one direction, or label both "
            f"alike",
        )
    if second:
        warn_once(
            "both ways",
            f"{where}: {second} {there}; models read both, metrics count those to the node of the "
            f"higher number",
        )


def _kind(value: object) -> str:
    """Describes a value in a message: a tensor's type and shape, or a class."""
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {value.dtype} {list(value.shape)}"
    return type(value).__name__
