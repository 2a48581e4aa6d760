"""Graphs handed to acorn, with the scores of a model or for its own trainings.

Shapes: N hits, E edges.
"""

import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bigtrk.console import follow
from bigtrk.disk.files import write_atomically
from bigtrk.disk.folders import new_folder
from bigtrk.errors import InputError
from bigtrk.formats.acorn.graphs.names import OLDER, SCORES
from bigtrk.formats.acorn.graphs.own_columns import own_columns
from bigtrk.formats.acorn.graphs.source import FOLDER, AcornSource, read_source
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.tracks.files import event_number

if TYPE_CHECKING:
    from torch_geometric.data import Data

Scorer = Callable[[EventGraph], Tensor]  # scores in [0, 1] of a graph's edges [E]


def export_acorn_folder(graphs: Path, out: Path, scorer: Scorer | None = None) -> list[Path]:
    """Writes each graph of folder `graphs` to folder `out` as acorn reads it, a .pyg file each;
    returns their paths. Those of graphs from acorn lie in the sub-folders that they came from.

    scorer: gives the edges' scores; without one the graphs are for acorn's own trainings.

    Raises:
        InputError: `out` is there already, or a graph lacks what acorn asks for; nothing is
            written then.
    """
    folder = GraphFolder(graphs)
    paths = []
    with new_folder(out) as unfinished:
        for event in follow(folder.events, len(folder.events), "exporting graphs"):
            data = acorn_data(folder.read(event), read_source(folder.open(event)), scorer)
            path = _place(folder, event) / f"{event}.pyg"
            _write(unfinished / path, data)
            paths.append(out / path)
    return paths


def acorn_data(
    graph: EventGraph, source: AcornSource | None = None, scorer: Scorer | None = None
) -> "Data":
    """Returns a graph as acorn has it, each column by its newer and its older name (the same
    tensor, which takes the room of one): readable with variable_with_prefix true and false, and by
    versions of acorn that know the older names alone.

    source: of a graph from acorn, whose columns, edges and their order come back as they were.

    Raises:
        InputError: the graph lacks what acorn asks for, its name has no number, or its scores are
            not finite or not one of each edge.
    """
    from torch_geometric.data import Data

    columns = own_columns(graph) if source is None else source.columns(graph)
    event_id = _innermost(columns.get("event_id")) or f"{event_number(graph.name):09d}"
    columns["event_id"] = event_id
    if scorer is not None:
        # A DataLoader makes a list of an event's id: what makes tracks reads such a list.
        columns |= {**_scored(graph, scorer), "event_id": [event_id]}
    columns |= {OLDER[name]: column for name, column in columns.items() if name in OLDER}
    data = Data(num_nodes=graph.n_nodes)
    for name, column in columns.items():
        data[name] = column
    return data


def _scored(graph: EventGraph, scorer: Scorer) -> dict[str, Any]:
    """Returns the scores [E] float32, and the seconds that they took."""
    start = time.perf_counter()
    scores = scorer(graph)
    taken = time.perf_counter() - start
    if scores.shape != (graph.n_edges,) or not bool(scores.isfinite().all()):
        raise InputError(
            f"{graph.name}: the model's scores {list(scores.shape)} are not one finite number for "
            f"each of {graph.n_edges} edges; see what it gives with 'bigtrk check-model'"
        )
    return {SCORES: scores.float(), "time_taken": taken}


def _innermost(event_id: Any) -> str:
    """Returns the text of an event's id, which DataLoaders nest in lists; "" of none."""
    while isinstance(event_id, list) and event_id:
        event_id = event_id[0]
    return str(event_id) if isinstance(event_id, str | int) else ""


def _place(folder: GraphFolder, event: str) -> Path:
    """Returns the sub-folder that an event came from.

    Raises:
        InputError: it would lead elsewhere.
    """
    place = PurePosixPath(str(folder.record(event).get(FOLDER, "")))
    if place.is_absolute() or ".." in place.parts or not str(place).isprintable():
        raise InputError(f"{folder.path}: {event} has no folder of acorn's; import it again")
    return Path(place)


def _write(path: Path, data: "Data") -> None:
    write_atomically(path, lambda temporary: torch.save(data, temporary))
