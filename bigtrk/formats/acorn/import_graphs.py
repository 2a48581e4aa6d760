"""Imports graphs that acorn saved, with all that an export back to acorn needs.

acorn stores the particles of true edges, not of hits. Shapes: N hits, E edges, T true edges, P
particles.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.disk.files import check_file
from bigtrk.errors import InputError, one_line
from bigtrk.events.event import MODULE_IDS, NOISE
from bigtrk.formats.acorn.export_graphs import (
    EDGES,
    FOLDER,
    HITS,
    NEWER,
    OLDER,
    PARTICLE,
    SCORES,
    SECTION,
    TRUE_EDGES_OF,
    VERTEX,
    AcornSource,
)
from bigtrk.formats.registry import PtUnit
from bigtrk.formats.torch_files import LIGHTNING, NUMPY, PYG, ForeignObject, TorchReader
from bigtrk.graphs.builders.builder import TARGET, quality_of
from bigtrk.graphs.event_graph import EventGraph, ParticleTable, target_edges
from bigtrk.graphs.features import (
    EDGE_FEATURES,
    Floats,
    Ints,
    as_tensor,
    cylindrical,
    edge_table,
    eta_of,
)
from bigtrk.graphs.storage.event_folder import ORIGIN
from bigtrk.graphs.storage.graph_folder import GraphToMake, MadeWithMore, as_it_is, fill_folder

READER = TorchReader(
    held=(*NUMPY, *PYG, *LIGHTNING),
    without="save the graph without it",
    again="write the graph again with acorn",
)
_OF_BATCHES = ("batch", "ptr", "num_nodes", "_num_nodes")  # added by a DataBatch of one graph
_RESULTS = (SCORES, "edge_track_labels")
MOST_VALUES = 50_000  # plain ones of one graph
_PLAIN_KEYS = (int, float, str)


@dataclass(frozen=True)
class AcornColumns:
    """The columns of one graph. tensors: as saved, by acorn's newer names. plain: other values,
    such as config and event_id.
    """

    file: Path
    tensors: dict[str, Tensor]
    plain: dict[str, Any]

    def column(self, name: str, rows: int, of: str) -> Tensor | None:
        """Returns the column `name` [rows]; None if absent. of: noun for the rows, in messages."""
        found = self.tensors.get(name)
        if found is not None and found.shape != (rows,):
            raise self.bad(name, f"has shape {list(found.shape)} for {rows} {of}", "correct it")
        return found

    def needed(self, name: str, where: str) -> Tensor:
        """Returns the tensor `name`; InputError without it, with the remedy `where`."""
        if name not in self.tensors:
            raise InputError(f"{self.file}: has no {_both(name)}; {where}")
        return self.tensors[name]

    def bad(self, name: str, problem: str, remedy: str) -> InputError:
        """Returns an InputError that names the file, column and remedy."""
        return InputError(f"{self.file}: {_both(name)} {problem}; {remedy}")


def read_acorn_columns(file: Path) -> AcornColumns:
    """Reads the columns of a graph that acorn saved, in .pyg or .pyg.gz."""
    raw = {name: one for name, one in READER.columns(file).items() if name not in _OF_BATCHES}
    tensors = {name: one for name, one in raw.items() if type(one) is Tensor}
    named = _in_newer_names(file, tensors)
    if is_older(tensors):
        _check_sizes(file, named)
    others = {name: one for name, one in raw.items() if name not in tensors}
    for name in [
        name for name, one in others.items() if isinstance(one, ForeignObject) and not one.items
    ]:
        warn_once(name, f"{file}: {one_line(name)!r} is left out, since its class is unknown")
        del others[name]
    budget = iter(range(MOST_VALUES))
    try:
        plain = {name: _plain(one, budget) for name, one in others.items()}
    except (StopIteration, RecursionError):
        raise InputError(f"{file}: has too many values; save only its tensors") from None
    return AcornColumns(file, named, plain)


def _in_newer_names(file: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames columns to acorn's newer names. If a result is saved under both names with different
    values, as when acorn scores a graph again, both are dropped.
    """
    newer = {name: NEWER.get(name, name) for name in tensors}
    if is_older(tensors) and "y" in tensors and tensors["y"].is_floating_point():
        newer["y"] = f"{HITS}y"  # as acorn's data reading has it, before edges are made
    renamed = {name: tensor for name, tensor in tensors.items() if newer[name] == name}
    for name, tensor in tensors.items():
        known = renamed.setdefault(newer[name], tensor)
        alike = known.dtype == tensor.dtype and known.shape == tensor.shape
        if alike and bool(((known == tensor) | (known.isnan() & tensor.isnan())).all()):
            continue
        if newer[name] not in _RESULTS:
            raise InputError(
                f"{file}: {one_line(name)} and {newer[name]}, acorn's two names of one column, "
                f"differ; save the graph with one of them"
            )
        del renamed[newer[name]]
    return renamed


def is_older(names: Iterable[str]) -> bool:
    """True if the columns of hits have only acorn's older names."""
    return not any(name.startswith(HITS) and name != "hit_id" for name in names)


def _check_sizes(file: Path, tensors: dict[str, Tensor]) -> None:
    """Raises InputError if lengths, which acorn's older names rely on, do not identify columns."""
    edges = tensors.get("edge_index", torch.empty(2, 0)).shape[-1]
    hits = tensors.get("hit_id", tensors.get(f"{HITS}z", torch.empty(0))).numel()
    true = tensors.get("track_edges", torch.empty(2, 0)).shape[-1]
    for what, count in (("hits", hits), ("true edges", true)):
        if edges and edges == count:
            raise InputError(
                f"{file}: has as many {what} as edges ({edges}), so the lengths of columns do not "
                "tell what they belong to; save it with variable_with_prefix: true"
            )


def _plain(value: Any, budget: Iterator[int]) -> Any:
    """Converts a value to plain texts, numbers, lists and dictionaries, without its classes."""
    next(budget)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, ForeignObject):
        value = value.items
    if isinstance(value, dict):
        named = (
            (k if isinstance(k, _PLAIN_KEYS) else type(k).__name__, v) for k, v in value.items()
        )
        return {key: _plain(one, budget) for key, one in named}
    if isinstance(value, list | tuple | set):
        return [_plain(one, budget) for one in value]
    return type(value).__name__


def _both(name: str) -> str:
    """Returns a column's newer name, and its older one if it has one, for messages."""
    return f"{name} ({OLDER[name]})" if name in OLDER else one_line(name)


ENDINGS = (".pyg", ".pyg.gz")
_EVENT = re.compile(r"(?:.*_)?(event\d{1,18})(?:-graph)?")


def _files(source: Path) -> dict[str, Path]:
    """Maps events to their .pyg or .pyg.gz files, found below folder `source`, or the one file.
    PREFIX_event000001000-graph.pyg.gz is the file of event000001000.
    """
    files = [source]
    if not source.is_file():
        files = sorted(path for path in source.rglob("*") if path.name.endswith(ENDINGS))
    if not files:
        raise InputError(f"{source}: holds no .pyg or .pyg.gz files; name a folder of acorn graphs")
    events: dict[str, Path] = {}
    for file in files:
        stem = file.name.removesuffix(".gz").removesuffix(".pyg")
        named = _EVENT.fullmatch(stem)
        other = events.setdefault(named[1] if named else stem, file)
        if other != file:
            raise InputError(
                f"{file}: is of the same event as {other}; import their folders separately, each "
                f"to a folder of its own"
            )
    return events


_PER_GEV: dict[PtUnit, float] = {"mev": 1000.0, "gev": 1.0}
# How a data reader's name begins (acorn's, or bigtrk's own) -> the unit of pT.
_UNITS: dict[str, PtUnit] = {"Athena": "mev", "TrackML": "gev", "Acts": "gev", "bigtrk": "gev"}
_TRUE = "true edges"
MOST_HITS = 2**31 - 1


def _particles_of_hits(columns: AcornColumns, n_hits: int) -> Tensor | None:
    """Returns the particle of each hit, [N] int64: the particle of a true edge at the hit, else
    noise. None if the file has no true edges, or no particles of theirs.
    """
    for name in (TRUE_EDGES_OF, PARTICLE):
        if name not in columns.tensors:
            warn_once(name, f"{columns.file}: has no {name}, so particles of hits stay unknown")
            return None
    edges, particle = _pairs(columns, TRUE_EDGES_OF, n_hits), columns.tensors[PARTICLE]
    columns.column(PARTICLE, edges.shape[1], _TRUE)
    if particle.is_floating_point():
        raise columns.bad(PARTICLE, f"is {particle.dtype}, which loses ids", "save integers")
    of_hit = np.full(n_hits, NOISE, np.int64)
    # In acorn's order: a hit of two particles gets the one whose edge ends there.
    for ends in edges:
        of_hit[ends] = particle.numpy()
    return torch.from_numpy(of_hit)


def _particle_table(
    columns: AcornColumns, particle_id: Tensor, pt_unit: PtUnit | None
) -> ParticleTable:
    """Makes the table of particles that have a true edge, ascending by id. Values that the file
    lacks are NaN, except numbers of hits, which are counted. particle_id [N]: of hits.
    """
    ids, first = np.unique(columns.tensors[PARTICLE].numpy(), return_index=True)
    ids, first = ids[ids != NOISE].astype(np.int64), first[ids != NOISE]

    def of_particles(name: str) -> Floats:
        column = columns.column(name, columns.tensors[TRUE_EDGES_OF].shape[1], _TRUE)
        if column is None:
            return np.full(len(ids), np.nan)
        values: Floats = column.double().numpy()[first]
        return values

    pt = of_particles("track_particle_pt")
    if "track_particle_pt" in columns.tensors:
        reader = reader_of(columns)
        known = (unit for kind, unit in _UNITS.items() if reader.startswith(kind))
        unit = pt_unit or next(known, None)
        if unit is None:
            raise InputError(
                f"{columns.file}: config[0]['model'] names no data reader whose unit of pT is "
                f"known (Athena... in MeV; TrackML..., Acts... in GeV); give --pt-unit mev or gev"
            )
        pt = pt / _PER_GEV[unit]
    else:
        warn_once(
            "track_particle_pt",
            f"{columns.file}: has no track_particle_pt (pt), so no particle passes a cut in pT; "
            "add pt to feature_sets.track_features of acorn's data reading",
        )
    of_hit, said = particle_id.numpy(), of_particles("track_particle_nhits")
    counted = np.bincount(np.searchsorted(ids, of_hit[np.isin(of_hit, ids)]), minlength=len(ids))
    nhits = np.where(np.isfinite(said), said.clip(0, MOST_HITS), counted).astype(np.int64)
    vertex = np.stack([of_particles(name) for name in VERTEX], axis=1)
    eta = of_particles("track_particle_eta")
    return ParticleTable(
        particle_id=torch.from_numpy(ids),
        pt=torch.from_numpy(pt).float(),
        eta=torch.from_numpy(eta).float(),
        vertex=torch.from_numpy(vertex).float(),
        nhits=torch.from_numpy(nhits),
    )


def reader_of(columns: AcornColumns) -> str:
    """Returns the name of the data reader that made a file, from its config; "" if unknown."""
    models = _models(columns.plain.get("config"))
    return next((model for model in models if model.startswith(tuple(_UNITS))), "")


def _models(config: Any) -> Iterator[str]:
    """Yields the names of a config's models, stage by stage; DataLoaders nest configs in lists."""
    if isinstance(config, dict) and isinstance(config.get("model"), str):
        yield config["model"]
    elif isinstance(config, list):
        for one in config:
            yield from _models(one)


_READ_HITS = "add it to feature_sets.hit_features of acorn's data reading"
_NO_FEATURES = ("x", "y", "id", "region", "weight")  # of hits: places, numbers and weights
# The largest coordinates: a kilometre keeps features finite in float32, half a turn tells rad.
_MOST = {"r": 1e6, "phi": np.pi + 1e-3, "z": 1e6, "eta": 100.0}
# Regions of the ITk whose hits have no clusters of their own: strips of both end caps.
_STRIP_END_CAPS = (2, 6)


def _hit_features(columns: AcornColumns) -> dict[str, Floats]:
    """Returns the features of hits, each [N]: r, phi, z (mm, rad), eta and others in the file."""
    n_hits = columns.needed(f"{HITS}z", _READ_HITS).numel()
    known = {
        name.removeprefix(HITS): tensor.double().numpy()
        for name, tensor in columns.tensors.items()
        if name.startswith(HITS)
        and tensor.is_floating_point()
        and columns.column(name, n_hits, "hits") is not None
    }
    if known.keys() >= {"x", "y", "z"}:
        known = {**cylindrical(known["x"], known["y"], known["z"]), **known}
    for name in ("z", "r", "phi"):
        if name not in known:
            columns.needed(HITS + name, _READ_HITS)
            raise columns.bad(HITS + name, "holds no floats", "save coordinates in mm and rad")
    known.setdefault("eta", eta_of(known["r"], known["z"]))
    first = {name: known.pop(name) for name in _MOST}
    for name, most in _MOST.items():
        beyond = np.flatnonzero(~(np.abs(first[name]) <= most))
        for hit in beyond[:1]:
            problem = f"of hit {hit} is {first[name][hit]}, not from {-most:.4g} to {most:.4g}"
            raise columns.bad(HITS + name, problem, "save coordinates in mm and rad, unscaled")
    features = first | {name: known[name] for name in sorted(known) if name not in _NO_FEATURES}
    return _as_acorn_reads(features, columns)


def _as_acorn_reads(features: dict[str, Floats], columns: AcornColumns) -> dict[str, Floats]:
    """Replaces cluster features of hits in strip end caps by the hits' own, as acorn does."""
    region = columns.column(f"{HITS}region", len(features["r"]), "hits")
    if region is None:
        return features
    alike = np.isin(region.numpy(), _STRIP_END_CAPS)
    clusters = {f"cluster_{name}_{i}": name for name in _MOST for i in (1, 2)}
    return {
        name: np.where(alike, features[clusters[name]], values) if name in clusters else values
        for name, values in features.items()
    }


def _integers(columns: AcornColumns, name: str, n_hits: int) -> Tensor | None:
    """Returns a column of hits as int64 [N]; None if the file lacks it or it holds no integers."""
    column = columns.column(HITS + name, n_hits, "hits")
    return None if column is None or column.is_floating_point() else column.to(torch.int64)


_ALIKE = ("hit_id", f"{HITS}module_id", PARTICLE)


def import_acorn_folder(
    source: Path, out: Path, pt_unit: PtUnit | None = None, prefix: str = ""
) -> dict[str, Any]:
    """Imports all acorn graphs in `source` (a stage's folder with its sub-folders, or one file) to
    `out`; returns the manifest.

    pt_unit: of the particles' pT, if the files do not name the reader that made them. prefix:
    starts the names of graphs. Raises InputError if there are no graphs, two are of one event, or
    one cannot be read; those imported before it stay.
    """
    files = _files(source)
    parameters = {"from": "acorn", "pt_unit": pt_unit}
    tasks = (
        _task(event, file, "" if file == source else str(file.parent.relative_to(source)), pt_unit)
        for event, file in files.items()
    )
    return fill_folder(out, tasks, len(files), parameters, "importing graphs", prefix=prefix)


def _task(event: str, file: Path, folder: str, pt_unit: PtUnit | None) -> GraphToMake:
    check_file(file)
    source = hashlib.sha256(file.read_bytes()).hexdigest()

    def make() -> MadeWithMore:
        graph, record, sections = read_acorn(file, event, pt_unit)
        return graph, {**record, FOLDER: folder}, sections

    return GraphToMake(event, source, make)


def read_acorn(file: Path, name: str, pt_unit: PtUnit | None = None) -> MadeWithMore:
    """Reads event `name` from acorn's .pyg or .pyg.gz file: its graph, its quality by the file's
    truth, and the section that an export to acorn needs.

    Edges keep their order; if the source of an edge has the larger r2 + z2, the edge is reversed,
    as acorn does where directions matter. Edge features are computed, since those in a file may be
    scaled. Node features are all float columns of hits except x and y. TrackML's hit ids, which
    acorn counts from 0, are restored. Raises InputError if the file is damaged, or a column is
    missing, misshapen or out of range; the message names the column and what to do in acorn.
    """
    columns = read_acorn_columns(file)
    # Trainings that read a column refuse numbers beyond float32 and NaN in it.
    with np.errstate(over="ignore", invalid="ignore"):
        graph, turned = _graph(columns, name, pt_unit)
    sections = {SECTION: AcornSource(columns.tensors, turned, columns.plain).section()}
    return graph, {**_quality(graph, columns), ORIGIN: _origin(columns, name)}, sections


def _origin(columns: AcornColumns, name: str) -> str:
    """Returns an event's SHA-256 over the integer columns that its files share in all of acorn's
    stages, whatever edges and scores they add. Floats lose digits as stages scale them and back.
    """
    sha = hashlib.sha256(name.encode())
    for column in _ALIKE:
        values = columns.tensors.get(column)
        if values is not None and not values.is_floating_point():
            sha.update(f"{column} {list(values.shape)}\n".encode())
            sha.update(values.long().contiguous().numpy().tobytes())
    return sha.hexdigest()


def _graph(columns: AcornColumns, name: str, pt_unit: PtUnit | None) -> tuple[EventGraph, Tensor]:
    """Makes a graph from acorn's columns; also returns which edges were reversed, [E] bool."""
    hits = _hit_features(columns)
    n_hits = len(hits["r"])
    columns.needed(
        "edge_index", "name the folder of a later stage of acorn, whose graphs have edges"
    )
    edges, distance = _pairs(columns, "edge_index", n_hits), hits["r"] ** 2 + hits["z"] ** 2
    turned = distance[edges[0]] > distance[edges[1]]
    edges = np.where(turned, edges[::-1], edges)
    particle_id = _particles_of_hits(columns, n_hits)
    weight = columns.column(f"{HITS}weight", n_hits, "hits")
    ids = _integers(columns, "id", n_hits)
    if ids is not None and reader_of(columns).startswith("TrackML"):
        ids = ids + 1  # acorn counts TrackML's from 0
    modules = (_integers(columns, name, n_hits) for name in MODULE_IDS)
    known = [column for column in modules if column is not None]
    graph = EventGraph(
        name=name,
        node_feature_names=tuple(hits),
        edge_feature_names=EDGE_FEATURES,
        node_features=as_tensor(hits),
        edge_index=torch.from_numpy(edges),
        edge_features=edge_table(hits, edges),
        y=_labels(columns, edges.shape[1]),
        hit_id=ids,
        particle_id=particle_id,
        hit_weight=None if weight is None else weight.double(),
        modules=None if len(known) < len(MODULE_IDS) else torch.stack(known, dim=1),
        particles=None if particle_id is None else _particle_table(columns, particle_id, pt_unit),
    )
    return graph, torch.from_numpy(turned)


def _quality(graph: EventGraph, columns: AcornColumns) -> dict[str, Any]:
    """Returns a graph's counts and quality by acorn's true edges, as `bigtrk build` does."""
    if graph.y is None or graph.particles is None:
        return as_it_is(graph)[1]
    edges = columns.tensors[TRUE_EDGES_OF].sort(dim=0)[0].unique(dim=1)
    true = torch.ones(edges.shape[1], dtype=torch.bool)
    target = target_edges(true, edges, graph.particle_id, graph.particles, TARGET)
    return quality_of(graph, len(true), int(target.sum()))


def _pairs(columns: AcornColumns, name: str, n_hits: int) -> Ints:
    """Returns column `name` of edges or true edges, checked: [2, E]."""
    pairs = columns.tensors[name]
    if pairs.dtype is not torch.int64 or pairs.dim() != 2 or len(pairs) != 2:
        kind = f"is {pairs.dtype} {list(pairs.shape)}, not int64 [2, edges]"
        raise columns.bad(name, kind, "convert it")
    outside = (pairs < 0) | (pairs >= n_hits)
    if outside.any():
        end, edge = (int(at) for at in outside.nonzero()[0])
        problem = f"of edge {edge} ends at hit {int(pairs[end, edge])}, but there are {n_hits}"
        raise columns.bad(name, problem, "correct it")
    edges: Ints = pairs.numpy()
    return edges


def _labels(columns: AcornColumns, n_edges: int) -> Tensor | None:
    """Returns each edge's label, [E] bool; None if the file has no labels."""
    labels = columns.column(f"{EDGES}y", n_edges, "edges")
    if labels is None:
        return None
    wrong = ((labels != 0) & (labels != 1)).nonzero()
    if len(wrong):
        edge = int(wrong[0])
        problem = f"of edge {edge} is {labels[edge].item()}, neither 0 nor 1"
        raise columns.bad(f"{EDGES}y", problem, "correct it")
    return labels == 1
