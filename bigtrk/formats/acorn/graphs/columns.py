"""A graph's columns in acorn's newer names, whichever names its file has.

Shapes: N hits, E edges, T true edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigtrk.console import warn_once
from bigtrk.errors import InputError, one_line
from bigtrk.formats.acorn.graphs.files import read_columns
from bigtrk.formats.acorn.graphs.names import HITS, NEWER, OLDER, SCORES, is_older
from bigtrk.formats.acorn.restricted import Held

_OF_BATCHES = ("batch", "ptr", "num_nodes", "_num_nodes")  # of a DataBatch of one graph
_RESULTS = (SCORES, "edge_track_labels")
MOST_VALUES = 50_000  # plain ones of one graph


@dataclass(frozen=True)
class AcornColumns:
    """The columns of one graph. tensors: by their newer names, as they were saved. plain: its other
    values, such as config and event_id.
    """

    file: Path
    tensors: dict[str, Tensor]
    plain: dict[str, Any]

    def column(self, name: str, rows: int, of: str) -> Tensor | None:
        """Returns the column `name` [rows], None where the file has none.

        of: what the rows are, for messages.

        Raises:
            InputError: it has another shape.
        """
        found = self.tensors.get(name)
        if found is not None and found.shape != (rows,):
            raise self.bad(name, f"has shape {list(found.shape)} for {rows} {of}", "correct it")
        return found

    def needed(self, name: str, where: str) -> Tensor:
        """Returns the tensor `name`.

        where: what to do in acorn so that it has one, for messages.

        Raises:
            InputError: the file has none.
        """
        if name not in self.tensors:
            raise InputError(f"{self.file}: has no {_both(name)}; {where}")
        return self.tensors[name]

    def bad(self, name: str, problem: str, remedy: str) -> InputError:
        """Returns the error that names the file, the column and the remedy."""
        return InputError(f"{self.file}: {_both(name)} {problem}; {remedy}")


def read_acorn_columns(file: Path) -> AcornColumns:
    """Reads the columns of a graph that acorn saved, in .pyg or .pyg.gz.

    Raises:
        InputError: as `read_columns`; one column is there under both names with other values; or
            older names do not tell what a column is of.
    """
    raw = {name: one for name, one in read_columns(file).items() if name not in _OF_BATCHES}
    tensors = {name: one for name, one in raw.items() if type(one) is Tensor}
    named = _in_newer_names(file, tensors)
    if is_older(tensors):
        _check_sizes(file, named)
    others = {name: one for name, one in raw.items() if name not in tensors}
    for name in [name for name, one in others.items() if isinstance(one, Held) and not one.items]:
        warn_once(name, f"{file}: {one_line(name)} is of a class that is not read, and left out")
        del others[name]
    budget = iter(range(MOST_VALUES))
    try:
        plain = {name: _plain(one, budget) for name, one in others.items()}
    except (StopIteration, RecursionError):
        raise InputError(
            f"{file}: holds more values than a graph; save its columns alone"
        ) from None
    return AcornColumns(file, named, plain)


def _in_newer_names(file: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames columns. Of a result that is there under both names with other values, as where acorn
    has scored a graph again, neither is kept.
    """
    newer = {name: _newer(name, tensors) for name in tensors}
    renamed = {newer[name]: tensor for name, tensor in tensors.items() if newer[name] == name}
    for name, tensor in tensors.items():
        known = renamed.setdefault(newer[name], tensor)
        if not _agree(known, tensor):
            if newer[name] not in _RESULTS:
                raise InputError(
                    f"{file}: {one_line(name)} and {newer[name]}, acorn's two names of one column, "
                    f"differ; save the graph with one of them"
                )
            del renamed[newer[name]]
    return renamed


def _newer(name: str, tensors: dict[str, Tensor]) -> str:
    if name == "y" and is_older(tensors) and tensors[name].is_floating_point():
        return f"{HITS}y"  # as acorn's data reading has it, before edges are made
    return NEWER.get(name, name)


def _agree(one: Tensor, other: Tensor) -> bool:
    """Says whether two tensors hold the same values, NaN where the other does."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def _check_sizes(file: Path, tensors: dict[str, Tensor]) -> None:
    """Refuses a graph of older names, which acorn tells apart by length, where lengths agree."""
    edges = tensors.get("edge_index", torch.empty(2, 0)).shape[-1]
    hits = tensors.get("hit_id", tensors.get(f"{HITS}z", torch.empty(0))).numel()
    true = tensors.get("track_edges", torch.empty(2, 0)).shape[-1]
    for what, count in (("hits", hits), ("true edges", true)):
        if edges and edges == count:
            raise InputError(
                f"{file}: has as many {what} as edges ({edges}), and acorn's older names do not "
                f"say which of them a column is of; save it with variable_with_prefix: true"
            )


def _plain(value: Any, budget: Iterator[int]) -> Any:
    """Returns what is left of a value without classes: texts, numbers, lists and dictionaries."""
    next(budget)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Held):
        value = value.items
    if isinstance(value, dict):
        return {_key(key): _plain(one, budget) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(one, budget) for one in value]
    return str(type(value).__name__)


def _key(key: Any) -> Any:
    return key if isinstance(key, bool | int | float | str) else str(type(key).__name__)


def _both(name: str) -> str:
    """Returns both names of a column."""
    return f"{name} ({OLDER[name]})" if name in OLDER else one_line(name)
