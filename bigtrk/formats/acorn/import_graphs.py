"""Graphs that acorn saved, imported with all that is needed to hand them back to it.

Shapes: N hits, E edges, T true edges, P particles.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigtrk.disk.files import check_file
from bigtrk.formats.acorn.columns import AcornColumns, read_acorn_columns
from bigtrk.formats.acorn.event_names import events_of, graph_files
from bigtrk.formats.acorn.names import EDGES, HITS, PtUnit
from bigtrk.formats.acorn.source import SECTION, kept_columns
from bigtrk.formats.acorn.truth import particle_table, particles_of_hits, reader_of
from bigtrk.graphs.coordinates import Floats, Ints, cylindrical, eta_of
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import EDGE_FEATURES, as_tensor, edge_columns
from bigtrk.graphs.storage.fill_folder import GraphToMake, as_it_is, fill_folder
from bigtrk.graphs.storage.tensor_files import Section

_READ_HITS = "add it to feature_sets.hit_features of acorn's data reading"
_MAKE_EDGES = "name the folder of a later stage of acorn, whose graphs have edges"
_NO_FEATURES = ("x", "y", "id", "region", "weight")  # of hits: places, numbers and weights
# The largest coordinates: a kilometre keeps features finite in float32, half a turn tells rad.
MOST = {"r": 1e6, "phi": np.pi + 1e-3, "z": 1e6, "eta": 100.0}
_MODULES = ("volume_id", "layer_id", "module_id")


@dataclass(frozen=True)
class AcornEvent:
    """A graph that acorn saved. beside: what it needs to be handed back (`source.py`)."""

    graph: EventGraph
    beside: dict[str, Section]


def import_acorn_folder(source: Path, out: Path, pt_unit: PtUnit | None = None) -> dict[str, Any]:
    """Imports all graphs of acorn in `source` (a stage's folder, with all below it, or one file) to
    `out`; returns the manifest.

    pt_unit: of particles' pT, where files do not name the reader that made them.

    Raises:
        InputError: there are none, two are of one event, or one cannot be read; those imported
            before it stay.
    """
    files = graph_files(source)
    parameters = {"from": "acorn", "pt_unit": pt_unit}
    tasks = _tasks(source, files, pt_unit)
    return fill_folder(out, tasks, len(files), parameters, "importing graphs")


def _tasks(source: Path, files: list[Path], pt_unit: PtUnit | None) -> Iterator[GraphToMake]:
    for event, file in events_of(files).items():
        check_file(file)
        folder = "" if source == file else str(file.parent.relative_to(source))
        read = cache(lambda file=file, event=event: read_acorn(file, event, pt_unit))
        yield GraphToMake(
            event,
            hashlib.sha256(file.read_bytes()).hexdigest(),
            lambda read=read, folder=folder: _with_folder(read().graph, folder),
            lambda read=read: read().beside,
        )


def _with_folder(graph: EventGraph, folder: str) -> tuple[EventGraph, dict[str, Any]]:
    """Returns a graph and its record, which knows the sub-folder that it is from: trainset, say."""
    graph, record = as_it_is(graph)
    return graph, {**record, "acorn_folder": folder}


def read_acorn(file: Path, name: str, pt_unit: PtUnit | None = None) -> AcornEvent:
    """Reads the graph of event `name` in a .pyg or .pyg.gz file of acorn.

    Edges keep their order; one whose source has the larger r2 + z2 is turned, as acorn does where
    directions matter. Features of edges are computed, as those in a file may be scaled. Of hits,
    all columns of floats but x and y are features. Ids of hits from TrackML, which acorn counts
    from 0, are TrackML's again.

    Raises:
        InputError: the file is damaged, or a column is missing, misshapen or out of range; the
            message names the column and what to do in acorn.
    """
    columns = read_acorn_columns(file)
    hits = _hits(columns)
    n_hits = len(hits["r"])
    edges, turned = _outwards(_edges(columns, n_hits), hits)
    particle_id = particles_of_hits(columns, n_hits)
    with np.errstate(over="ignore"):  # of a column that is beyond float32, as training will say
        node_features = as_tensor(hits)
    graph = EventGraph(
        name=name,
        node_feature_names=tuple(hits),
        edge_feature_names=EDGE_FEATURES,
        node_features=node_features,
        edge_index=torch.from_numpy(edges),
        edge_features=as_tensor(edge_columns(hits, edges)),
        y=_labels(columns, edges.shape[1]),
        hit_id=_hit_ids(columns, n_hits),
        particle_id=particle_id,
        hit_weight=_hit_weights(columns, n_hits),
        modules=_modules(columns, n_hits),
        particles=None if particle_id is None else particle_table(columns, particle_id, pt_unit),
    )
    return AcornEvent(graph, {SECTION: kept_columns(columns, torch.from_numpy(turned))})


def _hits(columns: AcornColumns) -> dict[str, Floats]:
    """Returns the features of hits, each [N]: r, phi, z (mm, rad), eta and what else is known."""
    n_hits = len(columns.needed(f"{HITS}z", _READ_HITS))
    known = {
        name.removeprefix(HITS): _floats(columns, name, n_hits)
        for name, tensor in columns.tensors.items()
        if name.startswith(HITS) and tensor.is_floating_point()
    }
    if "r" not in known or "phi" not in known:
        if "x" not in known or "y" not in known:
            columns.needed(f"{HITS}r" if "r" not in known else f"{HITS}phi", _READ_HITS)
        known = {**cylindrical(known["x"], known["y"], known["z"]), **known}
    known.setdefault("eta", eta_of(known["r"], known["z"]))
    first = {name: known.pop(name) for name in MOST}
    for name, most in MOST.items():
        beyond = np.flatnonzero(~(np.abs(first[name]) <= most))
        if len(beyond):
            problem = f"of hit {beyond[0]} is {first[name][beyond[0]]}, not within {most:g}"
            raise columns.bad(HITS + name, problem, "save coordinates in mm and rad, unscaled")
    return first | {name: known[name] for name in sorted(known) if name not in _NO_FEATURES}


def _floats(columns: AcornColumns, name: str, rows: int) -> Floats:
    column = columns.column(name, rows, "hits")
    assert column is not None
    values: Floats = column.double().numpy()
    return values


def _edges(columns: AcornColumns, n_hits: int) -> Ints:
    """Returns the edges as the file has them [2, E]."""
    edge_index = columns.needed("edge_index", _MAKE_EDGES)
    if edge_index.dtype is not torch.int64 or edge_index.dim() != 2 or len(edge_index) != 2:
        kind = f"is {edge_index.dtype} {list(edge_index.shape)}, not int64 [2, edges]"
        raise columns.bad("edge_index", kind, "make it so")
    outside = (edge_index < 0) | (edge_index >= n_hits)
    if outside.any():
        end, edge = (int(at) for at in outside.nonzero()[0])
        problem = f"of edge {edge} ends at hit {int(edge_index[end, edge])}, but there are {n_hits}"
        raise columns.bad("edge_index", problem, "correct it")
    edges: Ints = edge_index.numpy()
    return edges


def _outwards(edges: Ints, hits: dict[str, Floats]) -> tuple[Ints, "np.ndarray[Any, Any]"]:
    """Turns edges [2, E] whose source has the larger r2 + z2, and says which [E]."""
    distance = hits["r"] ** 2 + hits["z"] ** 2
    turned = distance[edges[0]] > distance[edges[1]]
    return np.where(turned, edges[::-1], edges), turned


def _labels(columns: AcornColumns, n_edges: int) -> Tensor | None:
    """Returns whether each edge is true [E] bool, None where the file does not say."""
    labels = columns.column(f"{EDGES}y", n_edges, "edges")
    if labels is None:
        return None
    wrong = ((labels != 0) & (labels != 1)).nonzero()
    if len(wrong):
        edge = int(wrong[0])
        problem = f"of edge {edge} is {labels[edge].item()}, neither 0 nor 1"
        raise columns.bad(f"{EDGES}y", problem, "correct it")
    return labels == 1


def _hit_ids(columns: AcornColumns, n_hits: int) -> Tensor | None:
    ids = _integers(columns, f"{HITS}id", n_hits)
    from_zero = reader_of(columns).startswith("TrackML")
    return ids + 1 if ids is not None and from_zero else ids


def _hit_weights(columns: AcornColumns, n_hits: int) -> Tensor | None:
    weights = columns.column(f"{HITS}weight", n_hits, "hits")
    return None if weights is None else weights.double()


def _modules(columns: AcornColumns, n_hits: int) -> Tensor | None:
    found = [_integers(columns, HITS + name, n_hits) for name in _MODULES]
    known = [column for column in found if column is not None]
    return torch.stack(known, dim=1) if len(known) == len(_MODULES) else None


def _integers(columns: AcornColumns, name: str, rows: int) -> Tensor | None:
    column = columns.column(name, rows, "hits")
    if column is None or column.is_floating_point():
        return None
    return column.to(torch.int64)
