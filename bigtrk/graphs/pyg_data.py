"""Checks the columns of PyG's `Data` and makes a graph of them: N nodes, E edges, F, G features."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.errors import InputError, number_of, one_line
from bigtrk.graphs.event_graph import (
    FEATURES,
    GRAPH,
    EventGraph,
    ParticleTable,
    check_columns,
    check_particles,
    check_rows,
    second_ways,
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
    """Makes and checks a graph from a Data's columns (from_pyg). where: its file, for messages."""
    content = {key: value for key, value in columns.items() if value is not None}
    name = name or content.get("name")
    if not isinstance(name, str):
        raise InputError("the Data has no name; call from_pyg(data, name)")
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
            f"{where}: edge_attr has {len(edge_attr)} rows for {n_edges} edges; give one per edge"
        )
    y = _labels(content["y"], len(x), n_edges, where) if "y" in content else None
    particles = content.get("particles")
    if particles is not None:
        if not isinstance(particles, dict) or {type(one) for one in particles.values()} != {Tensor}:
            raise InputError(
                f"{where}: particles is {_kind(particles)}, not a dict of tensors; make it one, or "
                "remove it"
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
            raise InputError(f"{where}: has no {name}; give both x [N, F] and edge_index [2, E]")
    for name in sorted(_TENSORS & content.keys()):
        value = content[name]
        # A subclass, such as EdgeIndex, has ways of its own to compute.
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_nested:
            raise InputError(f"{where}: {name} must be a plain dense tensor (got {_kind(value)})")
        if value.requires_grad or value.device.type != "cpu":
            raise InputError(
                f"{where}: {name} has gradients or is on a GPU; give {name}.detach().cpu()"
            )
    if others := [one_line(str(key)) for key in content if key not in _KEPT]:
        warn_once(
            "attributes",
            f"{where}: left out {', '.join(others)}, which a graph does not store",
        )


def _columns(
    content: Mapping[str, Any], key: str, given: Sequence[str], where: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Returns the features in `key` ("x" or "edge_attr") as float32, and their columns' names."""
    if key not in content:
        raise InputError(
            f"{where}: has no {key}, but names of its columns are given ({', '.join(given)}); "
            "leave them out"
        )
    features = content[key]
    if features.dim() != 2 or not features.is_floating_point():
        raise InputError(f"{where}: {key} is {_kind(features)}, but must be floats [rows, columns]")
    stored, count = "node_feature_names" if key == "x" else "edge_feature_names", features.shape[1]
    names = list(given) or content.get(stored, [f"{key[0]}{column}" for column in range(count)])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: {stored} is {_kind(names)}; make it a list of names")
    for name in names:
        if not name or name != one_line(name) or names.count(name) > 1:
            raise InputError(
                f"{where}: column name {one_line(repr(name))} is empty, unprintable or given "
                f"twice; change it"
            )
    if len(names) != count:
        found = f"{number_of(count, 'column')}, but {number_of(len(names), 'name')}"
        raise InputError(f"{where}: {key} has {found}; name each column once")
    if features.dtype is not torch.float32:
        warn_once(key, f"{where}: {key} is {features.dtype} and is rounded to float32")
    single = features.float()
    for row, column in (~single.isfinite()).nonzero()[:1].tolist():
        raise InputError(
            f"{where}: {key}[{row}, {column}] (column {names[column]}) is "
            f"{float(features[row, column])}; make it finite"
        )
    return single, tuple(names)


def _labels(y: Tensor, n_nodes: int, n_edges: int, where: str) -> Tensor:
    """Returns the label of each edge, [E] bool; InputError if `y` is of nodes, or not 0 or 1."""
    if y.shape != (n_edges,):
        if y.dim() and len(y) == n_nodes:
            raise InputError(
                f"{where}: y labels the {n_nodes} nodes, but bigtrk learns which edges join hits "
                "of one particle; give y a label per edge, and the nodes their particle_id"
            )
        raise InputError(f"{where}: y is {_kind(y)}, but must be [{n_edges}], a label per edge")
    for edge in ((y != 0) & (y != 1)).nonzero()[:1, 0].tolist():
        raise InputError(f"{where}: y, edge {edge} is {y[edge].item()}, not 0 or 1; correct it")
    return y == 1


def _warn_of_units_and_directions(graph: EventGraph, where: str) -> None:
    """Warns if r and z look too small for mm, phi too large for rad, or edges run both ways."""
    if graph.n_nodes:
        largest = graph.node_features.abs().amax(0).tolist()
        most = dict(zip(graph.node_feature_names, largest, strict=True))
        odd = [name for name in ("r", "z") if most.get(name, SMALLEST) < SMALLEST]
        for name in odd or [name for name in ("phi",) if most.get(name, 0.0) > MOST_PHI]:
            warn_once(
                "units",
                f"{where}: {name} is at most {most[name]:.3g}, as if it were scaled or in other "
                "units, but bigtrk reads r and z in mm and phi in rad; convert it, or rename the "
                "column",
            )
    node_id, alike = torch.arange(graph.n_nodes), torch.zeros(graph.n_edges, dtype=torch.bool)
    y = alike if graph.y is None else graph.y
    second = int(second_ways(graph.edge_index, node_id, y).sum())
    unlike = int(second_ways(graph.edge_index, node_id, alike).sum()) - second
    there = f"of {graph.n_edges} edges also exist in the other direction"
    if unlike:
        warn_once(
            "both ways, unlike",
            f"{where}: {unlike} {there}, with another label; keep one direction, or give both the "
            f"same label",
        )
    if second:
        warn_once(
            "both ways",
            f"{where}: {second} {there}; models read both, but metrics count only the edge to "
            f"the node with the higher index",
        )


def _kind(value: object) -> str:
    """Describes a value for a message: a tensor's type and shape, or a class name."""
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {value.dtype} {list(value.shape)}"
    return type(value).__name__
