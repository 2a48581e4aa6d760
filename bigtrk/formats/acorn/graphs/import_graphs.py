"""Graphs that acorn saved, imported with all that is needed to hand them back to it.

Shapes: N hits, E edges, T true edges, P particles.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.disk.files import check_file
from bigtrk.formats.acorn.graphs.columns import AcornColumns, read_acorn_columns
from bigtrk.formats.acorn.graphs.event_names import events_of, graph_files
from bigtrk.formats.acorn.graphs.hits import hit_features, hit_ids, hit_modules, hit_weights
from bigtrk.formats.acorn.graphs.names import EDGES, HITS, PARTICLE, PtUnit
from bigtrk.formats.acorn.graphs.source import FOLDER, SECTION, kept_columns
from bigtrk.formats.acorn.graphs.truth import TRUE_EDGES_OF, particle_table, particles_of_hits
from bigtrk.graphs.builders.builder import TARGET_HITS, TARGET_PT, first_of_each, shares
from bigtrk.graphs.event_graph import EventGraph, Section
from bigtrk.graphs.features import EDGE_FEATURES, Floats, Ints, as_tensor, edge_table
from bigtrk.graphs.storage.graph_folder import GraphToMake, as_it_is, fill_folder
from bigtrk.graphs.storage.manifest import ORIGIN
from bigtrk.graphs.target import Target, target_edges

_ALIKE = ("hit_id", f"{HITS}module_id", PARTICLE)
_MAKE_EDGES = "name the folder of a later stage of acorn, whose graphs have edges"


@dataclass(frozen=True)
class AcornEvent:
    """A graph that acorn saved. record: how good it is, as far as its truth says. beside: what it
    needs to be handed back (`source.py`).
    """

    graph: EventGraph
    record: dict[str, Any]
    beside: dict[str, Section]


def import_acorn_folder(
    source: Path, out: Path, pt_unit: PtUnit | None = None, prefix: str = ""
) -> dict[str, Any]:
    """Imports all graphs of acorn in `source` (a stage's folder, with all below it, or one file) to
    `out`; returns the manifest.

    pt_unit: of particles' pT, where files do not name the reader that made them. prefix: comes
    before the names of events, in those of graphs.

    Raises:
        InputError: there are none, two are of one event, or one cannot be read; those imported
            before it stay.
    """
    files = graph_files(source)
    parameters = {"from": "acorn", "pt_unit": pt_unit}
    tasks = (
        _task(event, file, "" if file == source else str(file.parent.relative_to(source)), pt_unit)
        for event, file in events_of(files).items()
    )
    return fill_folder(out, tasks, len(files), parameters, "importing graphs", prefix=prefix)


def _task(event: str, file: Path, folder: str, pt_unit: PtUnit | None) -> GraphToMake:
    check_file(file)
    source = hashlib.sha256(file.read_bytes()).hexdigest()
    read = cache(lambda: read_acorn(file, event, pt_unit))
    place = {FOLDER: folder}
    return GraphToMake(
        event,
        source,
        lambda: (read().graph, {**read().record, **place}),
        lambda: read().beside,
    )


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
    # What is beyond float32 or no number is for a training to say, if it reads the column.
    with np.errstate(over="ignore", invalid="ignore"):
        graph, turned = _graph(columns, name, pt_unit)
    beside = {SECTION: kept_columns(columns, turned)}
    return AcornEvent(graph, {**_quality(graph, columns), ORIGIN: _origin(columns, name)}, beside)


def _origin(columns: AcornColumns, name: str) -> str:
    """Returns the SHA-256 over what the files of an event have alike in all of acorn's stages,
    whatever edges and scores a stage adds: floats lose digits as stages scale them and back.
    """
    sha = hashlib.sha256(name.encode())
    for column in _ALIKE:
        values = columns.tensors.get(column)
        if values is not None and not values.is_floating_point():
            sha.update(f"{column} {list(values.shape)}\n".encode())
            sha.update(values.long().contiguous().numpy().tobytes())
    return sha.hexdigest()


def _graph(columns: AcornColumns, name: str, pt_unit: PtUnit | None) -> tuple[EventGraph, Tensor]:
    """Returns the graph, and which of its edges were turned [E] bool."""
    hits = hit_features(columns)
    n_hits = len(hits["r"])
    edges, turned = _outwards(_edges(columns, n_hits), hits)
    particle_id = particles_of_hits(columns, n_hits)
    graph = EventGraph(
        name=name,
        node_feature_names=tuple(hits),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(hits),
        edge_index=torch.from_numpy(edges),
        edge_features=edge_table(hits, edges),
        y=_labels(columns, edges.shape[1]),
        hit_id=hit_ids(columns, n_hits),
        particle_id=particle_id,
        hit_weight=hit_weights(columns, n_hits),
        modules=hit_modules(columns, n_hits),
        particles=None if particle_id is None else particle_table(columns, particle_id, pt_unit),
    )
    return graph, torch.from_numpy(turned)


def _quality(graph: EventGraph, columns: AcornColumns) -> dict[str, Any]:
    """Returns counts and quality of a graph by acorn's true edges, as `bigtrk build` records them;
    its purity alone where particles are not known.
    """
    if graph.y is None or graph.particles is None:
        return as_it_is(graph)[1]
    target = Target(pt_min=TARGET_PT, hits_min=TARGET_HITS)

    def n_target(true: Tensor, edges: Tensor) -> int:
        chosen = target_edges(true, edges, graph.particle_id, graph.particles, target)
        return int(chosen.sum())

    true = columns.tensors[TRUE_EDGES_OF]
    in_event = n_target(torch.ones(true.shape[1], dtype=torch.bool), true)
    # acorn's graphs may have an edge twice, as undirected ones do in both directions.
    first = first_of_each(graph.edge_index, graph.n_nodes)
    edges, y = graph.edge_index[:, first], graph.y[first]
    return shares(int(y.sum()), n_target(y, edges), edges.shape[1], true.shape[1], in_event)


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


def _outwards(edges: Ints, hits: dict[str, Floats]) -> tuple[Ints, NDArray[np.bool_]]:
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
