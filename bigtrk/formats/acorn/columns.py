"""Reads the columns of acorn's graphs from its files, and keeps them with imported graphs.

acorn's newer names (`variable_with_prefix: true`) begin with the kind of the rows: hit_x [N],
edge_y [E], track_particle_pt [T], of true edges. Its older ones do not: x, y, pt.

Shapes: N hits, E edges, T true edges.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.disk.safe_yaml import parse_yaml
from bigtrk.errors import InputError, one_line
from bigtrk.formats.torch_files import LIGHTNING, NUMPY, PYG, ForeignObject, TorchReader
from bigtrk.graphs.event_graph import EventGraph, Section
from bigtrk.graphs.features import EDGE_FEATURES
from bigtrk.graphs.storage.event_folder import SectionFile

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
        warn_once(name, f"{file}: its value {one_line(name)} is of an unknown class and left out")
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
                f"{file}: has as many {what} as edges ({edges}), so acorn's older names do not "
                "tell their columns apart; save it with variable_with_prefix: true"
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
