"""Ways to make graphs, each set so that it keeps a share of the target edges.

Target edges lead from layer to layer, of particles above 1 GeV with 3 hits. Shapes: E edges of a
graph, T pairs of hits.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import overlap_edges, true_edges
from bigtrk.graphs.builders.assembly import TARGET_HITS, TARGET_PT, event_graph
from bigtrk.graphs.builders.build_folder import EVENTS_TO_LEARN_FROM
from bigtrk.graphs.builders.builder import GraphBuilder, WindowBuilder
from bigtrk.graphs.builders.module_map.builder import ModuleMapBuilder
from bigtrk.graphs.builders.module_map.learning import learn_module_map
from bigtrk.graphs.builders.module_map.map_file import read_module_map, write_module_map
from bigtrk.graphs.builders.module_map.module_map import ModuleMap
from bigtrk.graphs.builders.module_map.names import MapWindows
from bigtrk.graphs.builders.radius import RadiusBuilder
from bigtrk.graphs.builders.window_learning import is_target, learn_windows
from bigtrk.graphs.builders.windows import Windows, read_windows, write_windows
from bigtrk.graphs.coordinates import Ints
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.pipeline.models import EdgeScorer, Embedding, load_embedding, load_scorer
from bigtrk.pipeline.stages import EMBEDDING, FILTER
from bigtrk.pipeline.training import PipelineSettings, train_stage
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.record import read_record
from bigtrk.training.embedding.validation import radius_of
from scripts.physics.physics_pipeline import run

WINDOW_GRAPHS, WINDOWS = "window_graphs", "windows.yaml"


@dataclass(frozen=True)
class Way:
    """A way to make an event's graph: a builder's doublets, without those below a filter's cut."""

    builder: GraphBuilder
    scorer: EdgeScorer | None = None
    cut: float = 0.0

    def __call__(self, event: Event) -> EventGraph:
        """Makes the graph of an event, whose truth it does not read."""
        graph = event_graph(event, self.builder.doublets(event), true=None)
        if self.scorer is None:
            return graph
        return graph.take_edges(self.scorer(graph) >= self.cut)


@dataclass(frozen=True)
class Held:
    """A folder of events with truth, of which the last `validation` by name train nothing."""

    folder: Path
    validation: int

    def training(self) -> list[Event]:
        """Reads the events that windows are learnt from."""
        names = find_events(self.folder)[: -self.validation][:EVENTS_TO_LEARN_FROM]
        return [read_event(self.folder, name) for name in names]

    def choice(self) -> list[Event]:
        """Reads the events that radius and cuts are chosen on."""
        names = find_events(self.folder)[-self.validation :]
        return [read_event(self.folder, name) for name in names]


def ways(
    pipeline: Path, held: Held, out: Path, settings: PipelineSettings, share: float
) -> dict[str, Way]:
    """Makes what is to be compared; windows and a filter of their graphs are trained in `out`."""
    record = read_record(PipelineRecord, pipeline / PIPELINE)
    embedding, choice = load_embedding(pipeline / EMBEDDING), held.choice()
    near = radius_keeping(embedding, choice, share)

    def by_radius(radius: float) -> RadiusBuilder:
        return RadiusBuilder(embedding, embedding.digest, radius)

    wide, scorer = filter_of_windows(held, out, settings)
    module_map = module_map_of(out, held)
    return {
        **{
            f"module_map_{windows}": Way(ModuleMapBuilder(module_map, windows))
            for windows in MapWindows
        },
        "windows": Way(WindowBuilder(windows_keeping(out, held, choice, share))),
        "embedding": Way(by_radius(near)),
        "embedding_filter": filtered(
            by_radius(record.radius), load_scorer(pipeline / FILTER), choice, share
        ),
        "windows_filter": filtered(wide, scorer, choice, share),
    }


def filter_of_windows(
    held: Held, out: Path, settings: PipelineSettings
) -> tuple[WindowBuilder, EdgeScorer]:
    """Learns windows and trains the pipeline's filter on their graphs, unless both are there."""
    graphs = out / WINDOW_GRAPHS
    run(f"bigtrk build {held.folder} {graphs} --learn-windows")
    train_stage(FILTER, settings, graphs, out, (sys.executable,))
    return WindowBuilder(read_windows(graphs / WINDOWS)), load_scorer(out / FILTER)


def windows_keeping(out: Path, held: Held, choice: Sequence[Event], share: float) -> Windows:
    """Learns windows that keep a share of the target edges, unless they are there."""
    path = out / f"windows_{share:g}.yaml"
    if not path.exists():
        events, made = held.training(), f"learned to keep {share:g} of the target edges"
        learnt = learn_windows(events, made, efficiency=share)
        # The margin for events not seen keeps more than was asked for.
        kept = _kept(WindowBuilder(learnt), choice)
        write_windows(path, learn_windows(events, made, efficiency=share - (kept - share)))
    return read_windows(path)


def module_map_of(out: Path, held: Held) -> ModuleMap:
    """Learns a module map, which keeps what it keeps, unless it is there."""
    path = out / "module_map.safetensors"
    if not path.exists():
        write_module_map(path, learn_module_map(held.training(), "of the events to train on"))
    return read_module_map(path)


def _kept(builder: GraphBuilder, events: Sequence[Event]) -> float:
    """Returns the share of the events' target edges that are in a builder's graphs."""
    found = [are_among(target_edges(event), builder.doublets(event)) for event in events]
    return float(np.concatenate(found).mean())


def radius_keeping(embedding: Embedding, events: Sequence[Event], share: float) -> float:
    """Returns the radius that keeps a share of the target edges of events."""
    lengths = []
    for event in events:
        first, second = embedding(event).astype(np.float64)[target_edges(event)]
        lengths.append(np.linalg.norm(first - second, axis=1))
    return radius_of(np.sort(np.concatenate(lengths)), share)


def filtered(
    builder: GraphBuilder, scorer: EdgeScorer, events: Sequence[Event], share: float
) -> Way:
    """Returns the way by builder and filter whose cut keeps a share of the target edges of events,
    or all that the builder's graphs hold where they hold less.
    """
    scores, wanted = [], 0
    for event in events:
        graph, target = Way(builder)(event), target_edges(event)
        wanted += target.shape[1]
        scores.append(scorer(graph).numpy()[are_among(graph.edge_index.numpy(), target)])
    falling = np.sort(np.concatenate(scores))[::-1]
    last = min(math.ceil(share * wanted), len(falling)) - 1
    return Way(builder, scorer, float(falling[last]))


def target_edges(event: Event) -> Ints:
    """Returns the target edges of an event, [2, T]."""
    return _of_target(event, true_edges(event))


def _of_target(event: Event, pairs: Ints) -> Ints:
    return pairs[:, is_target(event, TARGET_PT, TARGET_HITS)[pairs[0]]]


def are_among(pairs: Ints, others: Ints) -> NDArray[np.bool_]:
    """Says which of `pairs` [2, T] are among others, in either direction: [T]."""
    n_hits = 1 + max(pairs.max(initial=0), others.max(initial=0))
    mine, theirs = (np.minimum(*two) * n_hits + np.maximum(*two) for two in (pairs, others))
    return np.isin(mine, theirs)


def measured(graph: EventGraph, event: Event) -> dict[str, float | None]:
    """Judges a graph by the event's truth, the same whoever made it.

    target_efficiency: the share of target edges that it holds; overlap_efficiency: of pairs within
    a layer, where modules overlap, of the same particles; edge_efficiency: of all true edges from
    layer to layer; purity: true edges of either kind among its edges.
    """
    edges, true, overlaps = graph.edge_index.numpy(), true_edges(event), overlap_edges(event)

    def share(pairs: Ints, others: Ints) -> float | None:
        return float(are_among(pairs, others).mean()) if pairs.shape[1] else None

    return {
        "target_efficiency": share(_of_target(event, true), edges),
        "overlap_efficiency": share(_of_target(event, overlaps), edges),
        "edge_efficiency": share(true, edges),
        "edges": float(graph.n_edges),
        "purity": share(edges, np.concatenate([true, overlaps], axis=1)),
    }
