"""Exports graphs to acorn, with the scores of a model or for acorn's own trainings. Columns of
acorn's that a graph has no place for are kept with imported graphs, and go back with them.

acorn's newer names (`variable_with_prefix: true`) begin with the kind of the rows: hit_x [N],
edge_y [E], track_particle_pt [T], of true edges. Its older ones do not: x, y, pt.

Shapes: N hits, E edges, T true edges.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml
from torch import Tensor

from bigtrk.console import follow
from bigtrk.disk.files import new_folder, write_atomically
from bigtrk.disk.safe_yaml import parse_yaml
from bigtrk.errors import InputError
from bigtrk.events.event import MODULE_IDS, Event
from bigtrk.events.truth import true_edges
from bigtrk.graphs.event_graph import EventGraph, ParticleTable, Section
from bigtrk.graphs.features import EDGE_FEATURES, Ints
from bigtrk.graphs.storage.event_folder import MANIFEST, GraphFolder, SectionFile
from bigtrk.tracks.files import event_number

HITS, EDGES, TRUE_EDGES = "hit_", "edge_", "track_"  # how names begin in the newer scheme
SCORES = "edge_scores"
TRUE_MAP = "track_to_edge_map"
PARTICLE = "track_particle_id"
TRUE_EDGES_OF = "track_edges"
VERTEX = tuple(f"track_particle_{axis}" for axis in ("vx", "vy", "vz"))

_HIT_COLUMNS = (
    *("x", "z", "r", "phi", "eta", "region", "volume_id", "layer_id", "module_id", "module_index"),
    *(f"cluster_{column}_{side}" for column in ("r", "phi", "z", "eta") for side in (1, 2)),
    *("weight", "cell_count", "cell_val", "leta", "lphi", "lx", "ly", "lz", "geta", "gphi"),
)
# Older name -> newer name; hit_y has no older one, since y meant the edges' truth.
NEWER = {
    **{name: HITS + name for name in _HIT_COLUMNS},
    **{name: EDGES + name for name in EDGE_FEATURES},
    "y": "edge_y",
    "scores": SCORES,
    "labels": "edge_track_labels",
    "truth_map": TRUE_MAP,
    "particle_id": PARTICLE,
    **{name: f"track_particle_{name}" for name in ("pt", "radius", "primary", "nhits", "pdgId")},
    "eta_particle": "track_particle_eta",
    "redundant_split_edges": "track_redundant_split_edges",
}
OLDER = {newer: older for older, newer in NEWER.items()}


SECTION = "acorn"
FOLDER = "acorn_folder"  # in a record: such as trainset, where a graph goes back to
_COLUMN = "column/"
_BFLOAT16 = "bfloat16/"  # such a column's bits as int16, since numpy has no bfloat16
_TURNED = "turned"
_PLAIN = "plain"
_IN_GRAPH = ("edge_index", *(EDGES + name for name in EDGE_FEATURES))


@dataclass(frozen=True)
class AcornSource:
    """The columns that a graph had in acorn. turned [E] bool: edges that bigtrk reversed."""

    tensors: dict[str, Tensor]
    turned: Tensor
    plain: dict[str, Any]

    def columns(self, graph: EventGraph) -> dict[str, Any]:
        """Returns acorn's columns of the graph by their newer names; its edges have the order and
        directions that they had in acorn.
        """
        edges = torch.where(self.turned, graph.edge_index.flip(0), graph.edge_index)
        truth = {} if graph.y is None else {f"{EDGES}y": graph.y}
        return {"config": [], **self.plain, "edge_index": edges, **truth, **self.tensors}

    def section(self) -> Section:
        """Returns a file section of acorn's columns that the graph itself does not store."""
        text = yaml.safe_dump(self.plain, sort_keys=False).encode()
        plain = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        section = {_TURNED: self.turned, _PLAIN: plain}
        for name, column in self.tensors.items():
            if name in _IN_GRAPH or (name == f"{EDGES}y" and column.dtype is torch.bool):
                continue
            if column.dtype is torch.bfloat16:
                section[_BFLOAT16 + name] = column.contiguous().view(torch.int16)
            else:
                section[_COLUMN + name] = column
        return section


def thinned_section(opened: SectionFile, keep: Tensor) -> Section:
    """Returns the section of acorn's columns after a filter that keeps the edges `keep` [E] bool.
    Columns that only their length shows to be of edges are dropped.
    """
    source = read_source(opened)
    assert source is not None
    n_edges, tensors = len(keep), {}
    for name, column in source.tensors.items():
        if name == TRUE_MAP:
            # Each true edge's index among the edges kept, or -1.
            number = torch.cat([torch.where(keep, keep.cumsum(0) - 1, -1), torch.tensor([-1])])
            known = (column >= 0) & (column < n_edges)
            tensors[name] = number[column.long().where(known, -1)]
        elif name.startswith((HITS, TRUE_EDGES)) or n_edges not in column.shape:
            tensors[name] = column
        elif name.startswith(EDGES):
            tensors[name] = column[keep] if len(column) == n_edges else column[..., keep]
    return AcornSource(tensors, source.turned[keep], source.plain).section()


def read_source(opened: SectionFile) -> AcornSource | None:
    """Reads acorn's own columns from a graph's file; None if the graph is not from acorn."""
    if SECTION not in opened.digests:
        return None
    content = opened.read(SECTION)
    remedy = "import acorn's graphs again"
    turned, text = content.get(_TURNED), content.get(_PLAIN)
    if turned is None or text is None or turned.shape != (opened.record["edges"],):
        raise InputError(f"{opened.path}: acorn's own columns are missing or damaged; {remedy}")
    try:
        plain = parse_yaml(text.numpy().tobytes().decode())
        assert isinstance(plain, dict)
    except (ValueError, AssertionError):
        raise InputError(f"{opened.path}: its acorn config cannot be read; {remedy}") from None
    columns = {}
    for name, tensor in content.items():
        if name.startswith(_COLUMN):
            columns[name.removeprefix(_COLUMN)] = tensor
        elif name.startswith(_BFLOAT16):
            columns[name.removeprefix(_BFLOAT16)] = tensor.view(torch.bfloat16)
    return AcornSource(columns, turned, plain)


def own_columns(graph: EventGraph) -> dict[str, Any]:
    """Returns acorn's columns, in mm, rad and GeV, for a graph that was not imported from acorn.

    True edges are all pairs of consecutive hits of a particle, in the graph or not. Finding them
    takes the hits' modules, which tell layers apart; without modules, only true edges in the graph
    are known. InputError if the graph lacks its hits' ids, truth, particles or positions.
    """
    needed = "hit_id", "y", "particle_id", "particles"
    if lacking := [name for name in needed if getattr(graph, name) is None]:
        raise InputError(
            f"{graph.name}: has no {', '.join(lacking)}; acorn's stages need ids of hits (hit_id) "
            f"and truth (y, particle_id, particles); build the graph from events with truth"
        )
    assert graph.y is not None
    assert graph.hit_id is not None
    assert graph.particle_id is not None
    assert graph.particles is not None
    columns = _hit_columns(graph)
    true = graph.edge_index[:, graph.y].numpy()
    if graph.modules is not None:
        hit_id = np.arange(graph.n_nodes)  # ids of a graph from elsewhere may repeat
        vertex = zip(("vx", "vy", "vz"), graph.particles.vertex.double().numpy().T, strict=True)
        axes = ("x", "y", "z", *MODULE_IDS)
        event = Event(
            graph.name,
            hits={"hit_id": hit_id} | {name: columns[HITS + name].numpy() for name in axes},
            truth={"hit_id": hit_id, "particle_id": graph.particle_id.numpy()},
            particles={"particle_id": graph.particles.particle_id.numpy(), **dict(vertex)},
        )
        true = true_edges(event)
    return {
        **columns,
        f"{HITS}id": graph.hit_id,
        "edge_index": graph.edge_index,
        f"{EDGES}y": graph.y,
        TRUE_EDGES_OF: torch.from_numpy(true),
        TRUE_MAP: torch.from_numpy(_edge_of(true, graph)),
        **_particle_columns(graph.particles, graph.particle_id[torch.from_numpy(true[0])]),
        "config": [{"model": "bigtrk", "stage": "data_reading"}],
    }


def _hit_columns(graph: EventGraph) -> dict[str, Tensor]:
    names = graph.node_feature_names
    lacking = [name for name in ("r", "phi", "z", "eta") if name not in names]
    if lacking:
        raise InputError(
            f"{graph.name}: has no node feature {lacking[0]!r}; build the graph from events"
        )
    columns = {HITS + name: graph.node_features[:, i].double() for i, name in enumerate(names)}
    r, phi = columns[f"{HITS}r"], columns[f"{HITS}phi"]
    columns |= {f"{HITS}x": r * phi.cos(), f"{HITS}y": r * phi.sin()}
    if graph.hit_weight is not None:
        columns[f"{HITS}weight"] = graph.hit_weight
    if graph.modules is not None:
        for column, name in enumerate(MODULE_IDS):
            columns[HITS + name] = graph.modules[:, column].contiguous()
    return columns


def _edge_of(true: Ints, graph: EventGraph) -> Ints:
    """Returns the graph's edge for each true edge, [T]: an index, -1 if the graph lacks it, the
    last one if the edge is repeated, as acorn counts.
    """
    source, destination = graph.edge_index.numpy()
    key, wanted = source * graph.n_nodes + destination, true[0] * graph.n_nodes + true[1]
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], wanted, side="right") - 1
    edge = np.append(order, -1)[place]
    return np.where(np.append(key, -1)[edge] == wanted, edge, -1)


def _particle_columns(table: ParticleTable, particle: Tensor) -> dict[str, Tensor]:
    """Returns acorn's columns of particles for each true edge, [T] each; NaN or -1 if unknown."""
    row = table.rows_of(particle)

    def known(column: Tensor) -> Tensor:  # NaN in row -1, of particles not listed
        return torch.cat([column.double(), torch.tensor([torch.nan])])[row]

    vx, vy, vz = map(known, table.vertex.T)
    return {
        PARTICLE: particle,
        "track_particle_pt": known(table.pt),
        "track_particle_eta": known(table.eta),
        "track_particle_nhits": torch.cat([table.nhits, torch.tensor([-1])])[row],
        "track_particle_radius": torch.hypot(vx, vy),
        **dict(zip(VERTEX, (vx, vy, vz), strict=True)),
    }


if TYPE_CHECKING:
    from torch_geometric.data import Data

Scorer = Callable[[EventGraph], Tensor]  # scores in [0, 1] of a graph's edges [E]


def export_acorn_folder(graphs: Path, out: Path, scorer: Scorer | None = None) -> list[Path]:
    """Writes each graph in `graphs` to `out` as a .pyg file for acorn; returns the paths. Graphs
    that came from acorn go to sub-folders named like the ones they came from.

    scorer: computes the edges' scores; None: graphs for acorn's own trainings. Raises InputError if
    `out` exists, or a graph lacks what acorn needs; then nothing is written.
    """
    folder = GraphFolder(graphs)
    paths = []
    with new_folder(out) as unfinished:
        for event in follow(folder.events, len(folder.events), "exporting graphs"):
            data = acorn_data(folder.read(event), read_source(folder.open(event)), scorer)
            path = _place(folder, event) / f"{event}.pyg"
            write_atomically(unfinished / path, partial(torch.save, data))
            paths.append(out / path)
    return paths


def acorn_data(
    graph: EventGraph, source: AcornSource | None = None, scorer: Scorer | None = None
) -> "Data":
    """Converts a graph to acorn's Data. Each column has its newer and its older name, for one
    tensor in memory and on disk: so acorn reads it with variable_with_prefix true or false, and so
    do versions of acorn that know only the older names.

    source: for a graph from acorn, its former columns and edge order, which are restored. Raises
    InputError if the graph lacks what acorn needs, its name has no number, or its scores are not
    finite or not one per edge.
    """
    from torch_geometric.data import Data

    columns = own_columns(graph) if source is None else source.columns(graph)
    event_id = _innermost(columns.get("event_id")) or f"{event_number(graph.name):09d}"
    columns["event_id"] = event_id
    if scorer is not None:
        # acorn's track building expects an event id in a list, as a DataLoader makes it.
        start = time.perf_counter()
        scores = scorer(graph)
        taken = time.perf_counter() - start
        if scores.shape != (graph.n_edges,) or not bool(scores.isfinite().all()):
            raise InputError(
                f"{graph.name}: the model's scores (shape {list(scores.shape)}) are not one finite "
                f"number for each of {graph.n_edges} edges; try the model with 'bigtrk check-model'"
            )
        columns |= {SCORES: scores.float(), "time_taken": taken, "event_id": [event_id]}
    columns |= {OLDER[name]: column for name, column in columns.items() if name in OLDER}
    data = Data(num_nodes=graph.n_nodes)
    for name, column in columns.items():
        data[name] = column
    return data


def _innermost(event_id: Any) -> str:
    """Returns an event id as text, out of the lists that DataLoaders nest it in; "" if none."""
    while isinstance(event_id, list) and event_id:
        event_id = event_id[0]
    return str(event_id) if isinstance(event_id, str | int) else ""


def _place(folder: GraphFolder, event: str) -> Path:
    """Returns the sub-folder of acorn's data that an event was imported from."""
    place = PurePosixPath(str(folder.record(event).get(FOLDER, "")))
    if place.is_absolute() or ".." in place.parts or not str(place).isprintable():
        said = f"{FOLDER} of {event} is not a sub-folder; import this graph again"
        raise InputError(f"{folder.path / MANIFEST}: {said}")
    return Path(place)
