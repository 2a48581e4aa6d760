"""The trained stages of a pipeline, and the passage of an event through them.

Shapes: N hits, E edges.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.graphs.builders.builder import event_graph
from bigtrk.graphs.builders.radius import expected_pairs, largest_radius, outwards, pairs_within
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.features import Ints
from bigtrk.pipeline.models import CPU, EdgeScorer, Embedding, load_embedding, load_scorer
from bigtrk.pipeline.options import Precision
from bigtrk.records.pipeline import PIPELINE, TRAINED, PipelineRecord
from bigtrk.records.record import read_record
from bigtrk.tracing import traced
from bigtrk.tracks.builders.builder import ScoredGraph, TrackBuilder
from bigtrk.tracks.builders.merge_tree import MergeTree, read_merge_tree
from bigtrk.tracks.evaluation import scored_graph
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS

# Called with a stage's name, the edges that it leaves [2, E], and their scores [E], if any.
Watch = Callable[[str, NDArray[np.int64], NDArray[np.floating] | None], None]


def unwatched(*_: object) -> None:
    """A Watch that does nothing."""


@dataclass
class Passage:
    """An event's seconds and edges per stage, and notes; calls `watch` with what stages leave."""

    seconds: dict[str, float] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    watch: Watch = unwatched

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time of the block to stage `name`; names this stage to the watchdog."""
        start = time.perf_counter()
        with traced(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


EMBEDDING, FILTER, CLASSIFIER = TRAINED  # folders of the runs
MERGE_TREE = "merge_tree.safetensors"
Score = Callable[[EventGraph], Tensor]  # a graph's edges: [E] float64 in [0, 1]
MOST_EDGES = 8_000_000  # of an event's radius graph, which then takes 3 GiB


@dataclass(frozen=True)
class Pipeline:
    """The stages that turn hits into tracks. most_edges: limit of an event's radius graph."""

    embedding: Embedding
    radius: float
    filter: EdgeScorer
    cut: float
    classifier: EdgeScorer
    builder: MergeTree
    most_edges: int = MOST_EDGES

    @property
    def digests(self) -> dict[str, str]:
        """Returns the digests of the trained stages' weights, by stage."""
        return {stage: getattr(self, stage).digest for stage in TRAINED}

    def tracks(
        self, event: Event, min_hits: int, watch: Watch = unwatched
    ) -> tuple[NDArray[np.int64], Passage]:
        """Returns each hit's track [N] (or NO_TRACK) and the passage; it reads no truth."""
        graph, passage = self.graph(event, watch)
        return tracks_of(graph, self.classifier, self.builder, min_hits, passage), passage

    def graph(self, event: Event, watch: Watch = unwatched) -> tuple[EventGraph, Passage]:
        """Builds and filters the event's graph; InputError if the event lacks a stage's feature."""
        passage = Passage(watch=watch)
        pairs = self._pairs(event, passage)
        with passage.stage("features"):
            graph = event_graph(event, outwards(event.hits, pairs), true=None)
        passage.edges["radius"] = graph.n_edges
        watch("radius", graph.edge_index.numpy(), None)
        with passage.stage("filter"):
            graph = graph.take_edges(self.filter(graph) >= self.cut)
        passage.edges["filter"] = graph.n_edges
        watch("filter", graph.edge_index.numpy(), None)
        return graph, passage

    def _pairs(self, event: Event, passage: Passage) -> Ints:
        """Returns pairs of hits near in the embedding; reduces the radius if there are too many."""
        with passage.stage("embedding"):
            places = self.embedding(event)
        with passage.stage("radius"):
            tree = cKDTree(places)
            radius = largest_radius(tree, self.radius, self.most_edges)
            if radius < self.radius:
                passage.notes.append(
                    f"joins hits within {radius:.3g} instead of {self.radius:.3g}, where there are "
                    f"about {expected_pairs(tree, self.radius):,.0f} pairs, more than "
                    f"{self.most_edges:,}"
                )
            return pairs_within(tree, radius, event.hits)


def classified(graph: EventGraph, score: Score) -> ScoredGraph:
    """Scores a graph's edges and returns the input of a track builder."""
    whole = whole_sector(graph)
    return scored_graph(whole, score(graph)[whole.edge_id])


def tracks_of(
    graph: EventGraph, score: Score, builder: TrackBuilder, min_hits: int, passage: Passage
) -> NDArray[np.int64]:
    """Scores a graph's edges and builds tracks: the track of each hit [N], or NO_TRACK."""
    with passage.stage("classifier"):
        scored = classified(graph, score)
    passage.watch("classifier", scored.edge_index, scored.scores)
    with passage.stage("tracks"):
        try:
            return builder(scored, min_hits)
        except InputError as error:
            raise InputError(f"{graph.name}: {error}") from None


def load_pipeline(
    folder: Path, device: torch.device = CPU, precision: Precision | None = None
) -> Pipeline:
    """Loads the pipeline in `folder` to `device`. precision: of the classifier; None: as trained.
    Raises InputError if a stage is missing, damaged or of another version.
    """
    if not (folder / PIPELINE).is_file():
        raise InputError(
            f"{folder}: holds no {PIPELINE}; name a folder that 'bigtrk pipeline train' has "
            "finished (for one run alone, tracks are made by 'bigtrk infer')"
        )
    record = read_record(PipelineRecord, folder / PIPELINE)
    models = [f"{stage}/{file}" for stage in TRAINED for file in (DESCRIPTION, WEIGHTS)]
    for file in (*models, MERGE_TREE):
        if not (folder / file).exists():
            raise InputError(f"{folder}: its file {file} is missing; {PipelineRecord.made_again}")
    pipeline = Pipeline(
        embedding=load_embedding(folder / EMBEDDING, device),
        radius=record.radius,
        filter=load_scorer(folder / FILTER, device),
        cut=record.cut,
        classifier=load_scorer(folder / CLASSIFIER, device, precision),
        builder=read_merge_tree(folder / MERGE_TREE),
    )
    for stage, digest in pipeline.digests.items():
        if record.weights.get(stage) != digest:
            raise InputError(
                f"{folder / stage}: was trained again after {PIPELINE} was written; "
                f"{PipelineRecord.made_again}"
            )
    return pipeline
