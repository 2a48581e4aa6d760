"""EventGraphs as PyTorch Geometric's `Data`, and back.

Shapes: N nodes, E edges, F node features, G edge features.

An EventGraph's node_features, edge_features and y are the x [N, F], edge_attr [E, G] and y [E] of a
Data. The others have the same names in both; a Data holds the names of columns as lists, and the
particles as a dictionary of their columns.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.errors import InputError, one_line
from bigtrk.graphs.both_ways import second_ways
from bigtrk.graphs.checks import LABELS, PARTICLES, check_columns, check_particles
from bigtrk.graphs.event_graph import EventGraph, ParticleTable

if TYPE_CHECKING:
    from torch_geometric.data import Data

_OTHER_LABELS = {name: layout for name, layout in LABELS.items() if name != "y"}
_TENSORS = {"x", "edge_index", "edge_attr", "y", *_OTHER_LABELS}
_KEPT = {*_TENSORS, "name", "node_feature_names", "edge_feature_names", "particles"}
SMALLEST = 10.0  # mm, a radius or half-length that no detector falls below
MOST_PHI = 2.0 * math.pi + 1e-3  # rad, from -pi to pi or from 0 to 2 pi
Names = Sequence[str]


def to_data(graph: EventGraph) -> "Data":
    """Returns the graph as a Data that shares its tensors, without what the graph does not know.

    A graph without edge features has no edge_attr.
    """
    from torch_geometric.data import Data

    columns = {name: getattr(graph, name) for name in LABELS}
    known = {name: column for name, column in columns.items() if column is not None}
    if graph.edge_feature_names:
        known["edge_attr"] = graph.edge_features
    if graph.particles is not None:
        known["particles"] = {name: getattr(graph.particles, name) for name in PARTICLES}
    return Data(
        x=graph.node_features,
        edge_index=graph.edge_index,
        name=graph.name,
        node_feature_names=list(graph.node_feature_names),
        edge_feature_names=list(graph.edge_feature_names),
        **known,
    )


def from_data(
    data: "Data", name: str | None, node_names: Names, edge_names: Names, where: str | None = None
) -> EventGraph:
    """Makes the graph `name`, or data.name, of a Data, as EventGraph.from_pyg says.

    where: the file that it is from, for messages.

    Raises:
        InputError: as EventGraph.from_pyg.
    """
    content = {key: value for key, value in data.to_dict().items() if value is not None}
    name = name or content.get("name")
    if not isinstance(name, str):
        raise InputError("a Data without a name; give from_pyg the graph's")
    where = where or name
    _check_kind(data, where)
    _check_tensors(content, where)
    _say_left_out(content, where)
    x, x_names = _features(content, "x", node_names, where)
    edge_index = _edge_index(content, len(x), where)
    sizes = {"N": len(x), "E": edge_index.shape[1]}
    edge_attr, edge_attr_names = torch.empty(sizes["E"], 0), tuple(edge_names)
    if "edge_attr" in content or edge_names:
        edge_attr, edge_attr_names = _features(content, "edge_attr", edge_names, where)
    if len(edge_attr) != sizes["E"]:
        raise _bad(where, f"edge_attr has {len(edge_attr)} rows for {sizes['E']} edges; correct it")
    others = {key: content[key] for key in _OTHER_LABELS if key in content}
    check_columns(others, _OTHER_LABELS, sizes, where)
    y = _labels(content["y"], sizes, where) if "y" in content else None
    _say_if_scaled(x, x_names, where)
    _say_if_both_ways(edge_index, len(x), y, where)
    return EventGraph(
        name=name,
        node_feature_names=x_names,
        edge_feature_names=edge_attr_names,
        node_features=x,
        edge_index=edge_index,
        edge_features=edge_attr,
        y=y,
        particles=_particles(content, where),
        **others,
    )


def _check_kind(data: object, where: str) -> None:
    from torch_geometric.data import Batch, Data

    if isinstance(data, Batch) or not isinstance(data, Data):
        raise _bad(
            where,
            f"is a {type(data).__name__}, not the Data of one graph; give those of "
            f"batch.to_data_list() one by one, or hetero_data.to_homogeneous()",
        )


def _check_tensors(content: Mapping[str, Any], where: str) -> None:
    for name in ("x", "edge_index"):
        if name not in content:
            raise _bad(where, f"has no {name}; a graph has x [N, F] and edge_index [2, E]")
    for name in sorted(_TENSORS & content.keys()):
        value = content[name]
        # A subclass, such as EdgeIndex, has ways of its own to compute.
        if type(value) is not Tensor or not _is_plain(value):
            raise _bad(where, f"{name} is {_kind(value)}; make it a plain dense tensor")
        if value.requires_grad or value.device.type != "cpu":
            raise _bad(where, f"{name} has gradients or is on a device; give {name}.detach().cpu()")


def _is_plain(value: Tensor) -> bool:
    dense = value.layout is torch.strided and not value.is_nested
    return dense and not (value.is_quantized or value.is_complex())


def _say_left_out(content: Mapping[str, Any], where: str) -> None:
    others = [one_line(str(key)) for key in content if key not in _KEPT]
    if others:
        warn_once("attributes", f"{where}: {', '.join(others)}: left out, a graph has no place")


def _say_if_scaled(x: Tensor, names: Names, where: str) -> None:
    """Warns of columns with names of bigtrk's own whose values are too small for a detector in
    mm, or too large for rad.
    """
    if not len(x):
        return
    most = dict(zip(names, x.abs().amax(0).tolist(), strict=True))
    small = [name for name in ("r", "z") if most.get(name, SMALLEST) < SMALLEST]
    for name in small or [name for name in ("phi",) if most.get(name, 0.0) > MOST_PHI]:
        warn_once(
            "units",
            f"{where}: {name} is at most {most[name]:.3g}, as if x were scaled, and bigtrk reads "
            f"r, phi and z in mm and rad; give them so, or other names to the columns",
        )


def _say_if_both_ways(edge_index: Tensor, n_nodes: int, y: Tensor | None, where: str) -> None:
    labels = torch.zeros(edge_index.shape[1], dtype=torch.bool) if y is None else y
    second = int(second_ways(edge_index, torch.arange(n_nodes), labels).sum())
    if second:
        warn_once(
            "both ways",
            f"{where}: {second} of {edge_index.shape[1]} edges are there in the other direction, "
            f"too; models read both, metrics count those to the node of the higher number",
        )


def _features(
    content: Mapping[str, Any], key: str, given: Names, where: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Returns the features `key` in float32, and the names of their columns."""
    features = content.get(key)
    if features is None:
        raise _bad(where, f"has no {key}, whose columns are to be named {', '.join(given)}")
    if features.dim() != 2 or not features.is_floating_point():
        raise _bad(where, f"{key} is {_kind(features)}, not floats [rows, columns]; make it so")
    stored = "node_feature_names" if key == "x" else "edge_feature_names"
    names = _names(content, stored, given, where)
    if names is None:
        names = tuple(f"{key[0]}{column}" for column in range(features.shape[1]))
    if len(names) != features.shape[1]:
        count = features.shape[1]
        raise _bad(where, f"{key} has {count} columns, but there are {len(names)} names; name each")
    single = features.float()
    if features.dtype is not torch.float32:
        warn_once(key, f"{where}: {key} is {features.dtype} and is rounded to float32")
    finite = single.isfinite()
    if not finite.all():
        row, column = (int(at) for at in (~finite).nonzero()[0])
        value = float(features[row, column])
        raise _bad(where, f"{key}, row {row}, column {names[column]} is {value}; make it finite")
    return single, names


def _names(
    content: Mapping[str, Any], stored: str, given: Names, where: str
) -> tuple[str, ...] | None:
    """Returns the names of columns that are given or stored, None where there are none."""
    if not given and stored not in content:
        return None
    names = list(given) or content[stored]
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise _bad(where, f"{stored} is {_kind(names)}, not a list of names; make it one")
    for name in names:
        if not name or name != one_line(name) or names.count(name) > 1:
            named = one_line(repr(name))
            raise _bad(
                where, f"column name {named} is empty, unprintable or given twice; change it"
            )
    return tuple(names)


def _edge_index(content: Mapping[str, Any], n_nodes: int, where: str) -> Tensor:
    edge_index: Tensor = content["edge_index"]
    if edge_index.dtype is not torch.int64 or edge_index.dim() != 2 or len(edge_index) != 2:
        raise _bad(where, f"edge_index is {_kind(edge_index)}, not int64 [2, edges]; make it so")
    outside = (edge_index < 0) | (edge_index >= n_nodes)
    if outside.any():
        end, edge = (int(at) for at in outside.nonzero()[0])
        node = int(edge_index[end, edge])
        raise _bad(
            where,
            f"edge_index, edge {edge} ends at node {node}, but x has {n_nodes} rows; correct it",
        )
    return edge_index


def _labels(y: Tensor, sizes: Mapping[str, int], where: str) -> Tensor:
    """Returns the label of each edge [E] bool."""
    if y.shape != (sizes["E"],):
        if len(y.shape) and len(y) == sizes["N"]:
            raise _bad(
                where,
                f"y labels the {len(y)} nodes, and bigtrk learns which edges join hits of one "
                f"particle; give y of each edge, and nodes their particle_id",
            )
        raise _bad(where, f"y is {_kind(y)}, not [{sizes['E']}], a label of each edge; make it so")
    if y.dtype is torch.bool:
        return y
    values = y.double()
    wrong = ((values != 0) & (values != 1)).nonzero()
    if len(wrong):
        edge = int(wrong[0])
        raise _bad(where, f"y, edge {edge} is {y[edge].item()}, neither 0 nor 1; correct it")
    return values == 1


def _particles(content: Mapping[str, Any], where: str) -> ParticleTable | None:
    if "particles" not in content:
        return None
    columns = content["particles"]
    tensors = isinstance(columns, dict) and all(type(one) is Tensor for one in columns.values())
    if not tensors:
        raise _bad(where, f"particles is {_kind(columns)}, not tensors by name; leave it out")
    check_particles(columns, f"{where}, particles")
    return ParticleTable(**columns)


def _kind(value: object) -> str:
    """Says what a value is: a tensor's type and shape, or a class."""
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {value.dtype} {list(value.shape)}"
    return type(value).__name__


def _bad(where: str, problem: str) -> InputError:
    return InputError(f"{where}: {problem}")
