"""The interface for scripts and notebooks: functions like the commands, also on objects in memory.

All of it is an attribute of `bigtrk`. For the same input it gives the commands' results. Bad input
raises a ValueError with the line that a command would print. Lengths are in mm, momenta in GeV,
angles in rad; N nodes (hits), E edges.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bigtrk.config import nearest
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.events import reader
from bigtrk.events.event import Event as Event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders import builder as graph_builders
from bigtrk.graphs.builders.build_folder import build_with, windows_of
from bigtrk.graphs.builders.builder import GraphBuilder, WindowBuilder
from bigtrk.graphs.builders.windows import find_windows
from bigtrk.graphs.event_graph import EventGraph as EventGraph
from bigtrk.graphs.event_graph import Sector as Sector
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.graphs.storage.graph_folder import GraphToMake, as_it_is, fill_folder, graph_digest
from bigtrk.parallel.ranks import discover
from bigtrk.pipeline.models import EdgeScorer, load_scorer
from bigtrk.pipeline.stages import classified
from bigtrk.program import configure as configured
from bigtrk.program import train as train
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.names import BuilderName
from bigtrk.training.settings import Configuration as Configuration
from bigtrk.user_code import allow_code
from partition.cutting import CutSettings, divide
from partition.partitioners import Method
from partition.sectors import cut

Name = TypeVar("Name", bound=StrEnum)


@disk_errors()
def simulate(
    folder: str | Path,
    events: int = 8,
    particles: int = 1000,
    seed: int = 0,
    first_event: int = 0,
    detectors: str | Path = "trackml",
) -> None:
    """Simulates `events` events of `particles` particles each and writes them to `folder` as
    TrackML files, as `bigtrk simulate` does. Files that are there already are kept.

    detectors: `trackml`, `odd` (the Open Data Detector), or a detectors.csv.
    """
    _check_least(1, events=events, particles=particles)
    _check_least(0, seed=seed, first_event=first_event)
    numbers = range(first_event, first_event + events)
    simulate_folder(Path(folder), numbers, particles, seed, detectors)


@disk_errors()
def read_event(path: str | Path, name: str | None = None, with_truth: bool = True) -> Event:
    """Reads one event as tables of columns: hits with x, y, z in mm; cells, if known; and, if
    `with_truth`, particles and truth, if known.

    path: a folder or zip archive of TrackML files that holds event `name` (which may be left out if
    there is only one), a file of the event, a prefix such as `DIR/event000001000`, or the folder of
    a ColliderML sample.
    """
    return reader.read_event(Path(path), name, with_truth)


def build_graph(event: Event, builder: GraphBuilder | None = None) -> EventGraph:
    """Builds the graph of an event. Its N nodes are the hits; its E edges are pairs of hits that
    one particle may have made one after another. With truth, y [E] marks the true edges.

    builder: chooses the pairs; by default the windows that `bigtrk build` uses for known detectors.
    """
    return graph_builders.build_graph(event, builder or WindowBuilder(find_windows(None, event)))


@disk_errors()
def build_graphs(
    events: str | Path, folder: str | Path, builder: GraphBuilder | None = None
) -> "Graphs":
    """Builds a graph of each event in `events` (a folder or zip archive), as `build_graph` does,
    and writes the graphs to `folder`. Graphs already there, of the same events by the same builder,
    are kept, even if a damaged event ends the call.
    """
    build_with(Path(events), Path(folder), builder or WindowBuilder(windows_of(Path(events))))
    return open_graphs(folder)


@disk_errors()
def write_graphs(folder: str | Path, graphs: Sequence[EventGraph]) -> "Graphs":
    """Writes graphs from any source, each with its own name, to `folder`, where `train`,
    `open_graphs` and commands find them. The folder lists these alone; unchanged ones are kept.
    """
    # The names of a folder's graphs differ, and reading its files twice takes time.
    names = Counter(() if isinstance(graphs, Graphs) else (graph.name for graph in graphs))
    if twice := [name for name, count in names.items() if count > 1]:
        raise InputError(f"two graphs are called {twice[0]!r}; give each its own name")

    def task(graph: EventGraph) -> GraphToMake:
        return GraphToMake(graph.name, graph_digest(graph), partial(as_it_is, graph))

    tasks, made = map(task, graphs), {"from": "python"}
    fill_folder(Path(folder), tasks, len(graphs), made, "writing graphs", alone=True)
    return open_graphs(folder)


@dataclass(frozen=True)
class Graphs(Sequence[EventGraph]):
    """The graphs of a folder. Each access reads a graph from its file and verifies its checksums.
    Reading a graph twice gives two objects that are not `==`; compare their names.
    """

    folder: GraphFolder
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> EventGraph: ...

    @overload
    def __getitem__(self, index: slice) -> "Graphs": ...

    def __getitem__(self, index: int | slice) -> "EventGraph | Graphs":
        """Reads the graph at `index`; a slice gives Graphs, of which nothing is read yet."""
        if isinstance(index, slice):
            return Graphs(self.folder, self.names[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.folder.path}: has {len(self)} graphs, and none at {index}")
        return self.folder.read(self.names[index])


def open_graphs(folder: str | Path) -> Graphs:
    """Opens a folder of graphs made by `bigtrk build` or `write_graphs`, sorted by name."""
    opened = GraphFolder(Path(folder))
    return Graphs(opened, tuple(opened.events))


def configure(*arguments: str) -> Configuration:
    """Makes a run's configuration from the arguments of `bigtrk train`, in any order: a YAML file
    (by default `bigtrk.yaml` in the working folder, or else the shipped default) and settings
    `key.sub=value`, such as `data.train=graphs`. For an unknown key the error names the nearest.
    """
    for argument in arguments:
        if not isinstance(argument, str):
            raise InputError(
                f"{argument!r} is not text; give text, such as 'training.epochs=2' or 'file.yaml'"
            )
    return configured(Namespace(arguments=list(arguments), resume=None, code=[]))


@dataclass(frozen=True)
class TrainedModel:
    """The trained edge model of a run, on the accelerator if there is one."""

    scorer: EdgeScorer

    def score(self, graph: EventGraph) -> Tensor:
        """Scores the edges of a whole graph, with truth or without. Returns [E] float64 in [0, 1],
        in the order of graph.edge_index.
        """
        return self.scorer(graph)


def load_model(run: str | Path, code: str | Sequence[str] = ()) -> TrainedModel:
    """Loads the edge model at the end of training from a run's folder.

    code: your own module, or modules, that the run names, if they are not installed. Their code is
    run, so name only modules that you trust.
    """
    allow_code([code] if isinstance(code, str) else code)
    return TrainedModel(load_scorer(Path(run), discover().device))


def build_tracks(
    graph: EventGraph,
    scores: ArrayLike | Tensor,
    builder: str = "components",
    score_cut: float | None = None,
    hits_min: int = 3,
) -> NDArray[np.int64]:
    """Makes tracks of a scored graph. Returns the track number of each hit, [N] from 0; -1 for hits
    in no track.

    scores [E]: as `TrainedModel.score` gives them, or in an array or list. builder: components,
    junction_removal, walk or fast_walk. score_cut: only edges with a score above it are used; None:
    the builder's own. hits_min: least hits of a track. The graph needs its hits' r, phi and z.
    """
    chosen = _choice(BuilderName, builder, "builder")
    if score_cut is not None and not (isinstance(score_cut, Real) and 0 <= score_cut <= 1):
        raise InputError(f"score_cut={score_cut!r}: must be between 0 and 1")
    _check_least(1, hits_min=hits_min)
    checked = _checked_scores(graph, scores)
    return make_builder(chosen, score_cut)(classified(graph, lambda _: checked), hits_min)


def _checked_scores(graph: EventGraph, scores: ArrayLike | Tensor) -> Tensor:
    """Returns scores as [E] float64 on the host; InputError unless each edge has one in [0, 1]."""
    with suppress(TypeError, ValueError, RuntimeError):
        checked = torch.as_tensor(scores).detach().cpu().double()
        if checked.shape == (graph.n_edges,) and ((checked >= 0) & (checked <= 1)).all():
            return checked
    raise InputError(f"{graph.name}: scores must be {graph.n_edges} numbers, 0 to 1, one per edge")


def partition(
    graph: EventGraph,
    parts: int | None = None,
    max_edges: int | None = None,
    method: str = "metis",
    seed: int = 0,
) -> list[Sector]:
    """Cuts a graph into sectors that train together with halo exchange, as `bigtrk partition` does.

    Give `parts`, the number of sectors, or `max_edges`, the most edges of a sector, which gives 1,
    2, 4 ... sectors. method: metis (fewest cut edges) or wedges (by the azimuth phi). seed: of
    METIS.
    """
    if (parts is None) == (max_edges is None):
        raise InputError("parts and max_edges both set the number of sectors; give one of the two")
    _check_least(1, **{"parts": parts} if max_edges is None else {"max_edges": max_edges})
    _check_least(0, seed=seed)
    settings = CutSettings(parts, max_edges, _choice(Method, method, "method"), seed)
    part, made, _ = divide(graph, settings)
    return cut(graph, torch.from_numpy(part), made)


def _check_least(least: int, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, Integral):
            raise InputError(f"{name}={value!r}: must be an integer")
        if value < least:
            raise InputError(f"{name}={value}: must be {least} or more")


def _choice(kind: type[Name], value: str, name: str) -> Name:
    try:
        return kind(value)
    except ValueError:
        known = nearest(value, [one.value for one in kind])
        raise InputError(f"{name}={value}: is unknown{known}") from None
