"""`bigtrk evaluate PIPELINE EVENTS`: counts at which stage a pipeline loses particles.

Shapes: N hits, E edges, T true edges, P particles of an event, C of them that are to be found.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from bigtrk.console import complain, follow
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError, printable
from bigtrk.events.event import NOISE, Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from bigtrk.graphs.builders.builder import are_true
from bigtrk.graphs.builders.radius import true_pairs
from bigtrk.graphs.storage.graph_folder import event_digest
from bigtrk.pipeline.stages import CLASSIFIER, Passage, Pipeline, load_pipeline
from bigtrk.records.evaluation import PipelineEvaluationRecord, StageLeft, write_evaluation
from bigtrk.records.pipeline import PIPELINE, TRAINED, PipelineRecord
from bigtrk.records.record import read_record
from bigtrk.tracks.bins import (
    ETA_EDGES,
    HITS_EDGES,
    PT_EDGES,
    VERTEX_EDGES,
    Axes,
    Bins,
    Floats,
    added,
)
from bigtrk.tracks.builders.builder import NO_TRACK, adjacency, components, numbered
from bigtrk.tracks.edge_metrics import edge_scores_record, score_counts
from bigtrk.tracks.evaluation import (
    JudgedTracks,
    budget_matching,
    judge_hits,
    losses_of,
    summarise_judged,
    true_particles,
)
from bigtrk.tracks.matching import Criteria, Ids, Judgement, Mask, Matching, match_tracks
from bigtrk.training.model_files import load_model, model_configuration

FULL_TURN = 2 * math.pi
DISTANCE_EDGES = tuple(round(10 ** (step / 3), 4) for step in range(-9, 4))


def particle_axes(event: Event, particle: Ids, min_hits: int) -> Axes:
    """Returns, for each quantity of particles, its values [C] and the bin limits. particle [C]:
    rows of `particle_kinematics`.

    pt (GeV), eta, hits. distance: in eta and phi to the nearest other particle of at least
    `min_hits` hits, infinite without one. vertex: distance of the production vertex from the beam
    line (mm), at least the first limit. A value that the truth does not give is NaN.
    """
    table = {name: column.astype(np.float64) for name, column in particle_kinematics(event).items()}
    is_long = np.flatnonzero(table["nhits"] >= min_hits)
    distance = np.full(len(table["nhits"]), np.nan)
    distance[is_long] = nearest_distances(table["eta"][is_long], table["phi"][is_long])
    from_beam = np.maximum(np.hypot(table["vx"], table["vy"]), VERTEX_EDGES[0])
    columns = {
        "pt": (table["pt"], PT_EDGES),
        "eta": (table["eta"], ETA_EDGES),
        "distance": (distance, DISTANCE_EDGES),
        "vertex": (from_beam, VERTEX_EDGES),
        "hits": (table["nhits"], HITS_EDGES),
    }
    return {axis: (values[particle], edges) for axis, (values, edges) in columns.items()}


def nearest_distances(eta: Floats, phi: Floats) -> Floats:
    """Returns each particle's distance in eta and phi (rad) to the nearest other: [P] -> [P]. NaN
    if the particle's own direction is unknown, infinite if no other particle's is known.
    """
    distance = np.full(len(eta), np.nan)
    known = np.flatnonzero(np.isfinite(eta) & np.isfinite(phi))
    if not len(known):
        return distance
    turn = phi[known] % FULL_TURN
    # The remainder of a tiny negative angle is rounded to the full turn.
    places = np.stack([eta[known], np.where(turn < FULL_TURN, turn, 0.0)], axis=1)
    tree = cKDTree(places, boxsize=(0.0, FULL_TURN))  # 0: that axis has no period
    nearest, _ = tree.query(places, k=2)
    distance[known] = nearest[:, 1]
    return distance


EVENT, BUILDER = "event", "builder"  # before the first stage; the last stage
CATEGORIES = ("found", "hits", "radius", "filter", "true_edges_cut", "merged", "builder")
# Stage -> the parts of a Passage whose seconds it sums.
PARTS = {
    EVENT: (),
    "radius": ("embedding", "radius", "features"),
    "filter": ("filter",),
    "classifier": ("classifier",),
    BUILDER: ("tracks",),
}
MOST_NOTES = 20


class WatchedEvent:
    """Follows an event with truth through a pipeline, whose stages call it with the edges they
    leave (Watch). wanted [C]: the rows of `particle_kinematics` that `matching` wants to be found.

    counts: for each stage, the edges it leaves, the true and target edges among them, and the
    particles still findable. findable: for each category of loss but the last, in order, which
    wanted particles [C] can still be found. scores: the classifier's `score_counts` [3, B].
    """

    scores: Ids

    def __init__(self, event: Event, matching: Matching, edge_cut: float) -> None:
        self._event, self._matching, self._edge_cut = event, matching, edge_cut
        self._particle_id, self._particles = hit_particles(event), true_particles(event)
        self._true = true_pairs(event)
        # Which particles are to be found does not depend on the tracks.
        self.wanted = self._judged(np.full(len(self._particle_id), NO_TRACK, np.int64)).particle
        self._is_wanted = np.isin(self._particle_id, self._particles.particle_id[self.wanted])
        self.counts: dict[str, dict[str, int]] = {}
        self.findable: list[Mask] = []
        self(EVENT, self._true, None)

    def __call__(self, stage: str, edges: Ids, scores: NDArray[np.floating] | None) -> None:
        kept = edges if scores is None else edges[:, scores > self._edge_cut]
        self.findable.append(self._found_by_components(kept[:, self._are_true(kept)]))
        self._count(stage, kept, self.findable[-1])
        if scores is not None:
            true = self._are_true(edges)
            self.scores = score_counts(scores, true, true & self._is_wanted[edges[0]])
            self.findable.append(self._found_by_components(kept))

    def take_tracks(self, tracks: Ids) -> Mask:
        """Adds the tracks' edges to `counts`; marks the wanted particles found, [C]. tracks [N]."""
        found = self._judged(tracks).reconstructed
        # A hit in no track becomes noise.
        made = {"hit_id": self._event.hits["hit_id"], "particle_id": tracks - NO_TRACK + NOISE}
        self._count(BUILDER, true_pairs(replace(self._event, particles=None, truth=made)), found)
        return found

    def _count(self, stage: str, edges: Ids, findable: Mask) -> None:
        true = self._are_true(edges)
        target = true & self._is_wanted[edges[0]]
        self.counts[stage] = {
            "edges": edges.shape[1],
            "true_edges": int(true.sum()),
            "target_edges": int(target.sum()),
            "findable": int(findable.sum()),
        }

    def _are_true(self, edges: Ids) -> Mask:
        return are_true(edges, self._true, len(self._particle_id))

    def _found_by_components(self, edges: Ids) -> Mask:
        joined = adjacency(edges[0], edges[1], len(self._particle_id))
        tracks = numbered(components(joined), self._matching.min_track_length)
        return self._judged(tracks).reconstructed

    def _judged(self, tracks: Ids) -> Judgement:
        return match_tracks(tracks, self._particle_id, self._particles, self._matching)


@dataclass(frozen=True)
class EventLosses:
    """The outcome of an event of `hits` hits: its tracks by each matching, the counts of each
    stage, the classifier's `score_counts` [3, B], and its particles by CATEGORIES, also in bins.
    """

    hits: int
    tracks: JudgedTracks
    stages: dict[str, dict[str, int]]
    scores: Ids
    losses: list[int]
    loss_bins: Bins
    passage: Passage


def event_losses(
    pipeline: Pipeline, event: Event, criteria: Criteria, edge_cut: float
) -> EventLosses:
    """Sends an event with truth through a pipeline and sorts its particles: each goes to the first
    of CATEGORIES that fits, in the style and mode of the loss budget.

    found: a track matches it. hits: even all true edges of the event join fewer of its hits than a
    track has. radius, filter, true_edges_cut: so do the true edges of the radius graph, those that
    the filter leaves, those that score above `edge_cut`. merged: all edges above `edge_cut`, with
    the false ones, join its hits to others. builder: these edges would find it.
    """
    watched = WatchedEvent(event, budget_matching(criteria.matchings()), edge_cut)
    tracks, passage = pipeline.tracks(event, criteria.min_hits, watched)
    found = watched.take_tracks(tracks)
    axes = particle_axes(event, watched.wanted, criteria.min_hits)
    conditions = [found, *(~findable for findable in watched.findable)]
    losses, loss_bins = losses_of(conditions, CATEGORIES, axes)
    return EventLosses(
        hits=len(tracks),
        tracks=judge_hits(event, tracks, criteria.matchings()),
        stages=watched.counts,
        scores=watched.scores,
        losses=losses,
        loss_bins=loss_bins,
        passage=passage,
    )


def added_up(events: Sequence[EventLosses], matchings: Sequence[Matching]) -> dict[str, Any]:
    """Combines the losses of events (at least one) into the entries of their record."""
    losses = np.sum([event.losses for event in events], axis=0).tolist()
    stages = []
    for name, parts in PARTS.items():
        seconds = fmean(sum(event.passage.seconds[part] for part in parts) for event in events)
        sums = Counter[str]()
        for event in events:
            sums.update(event.stages[name])
        stages.append(StageLeft(stage=name, seconds=seconds, **sums))
    return {
        "stages": tuple(stages),
        "scores": edge_scores_record([event.scores for event in events]),
        "tracks": summarise_judged([event.tracks for event in events], matchings),
        "losses": dict(zip(CATEGORIES, losses, strict=True)),
        "loss_bins": added([event.loss_bins for event in events]),
    }


def evaluate_pipeline(folder: Path, events: Path, criteria: Criteria) -> PipelineEvaluationRecord:
    """Sends the events in `events` through the pipeline in `folder`; returns a record of what each
    stage leaves and loses, and writes it to `folder`/evaluations. Events on which a stage was
    trained are left out, unless there are no others. Raises InputError if the pipeline or an event
    cannot be read, an event has no truth, or the disk refuses.
    """
    pipeline = load_pipeline(folder)
    edge_cut = model_configuration(folder / CLASSIFIER).training.edge_cut
    names, trained_on, left_out = _unseen(folder, events)
    found: dict[str, EventLosses] = {}
    for name in follow(names, len(names), "evaluate"):
        event = _read_with_truth(folder, events, name)
        found[name] = event_losses(pipeline, event, criteria, edge_cut)
    losses = [*found.values()]
    notes = [f"{name}: {note}" for name, event in found.items() for note in event.passage.notes]
    for note in notes:
        complain(note)
    record = PipelineEvaluationRecord(
        data=printable(str(events.resolve())),
        made=datetime.now(UTC),
        weights=read_record(PipelineRecord, folder / PIPELINE).weights,
        events=len(names),
        events_trained_on=trained_on,
        events_left_out=left_out,
        hits=sum(event.hits for event in losses),
        **asdict(criteria),
        edge_cut=edge_cut,
        **added_up(losses, criteria.matchings()),
        notes=tuple(notes[:MOST_NOTES]),
    )
    with disk_errors():
        path = write_evaluation(folder, record)
    complain(f"evaluation in {path}")
    return record


def _unseen(folder: Path, events: Path) -> tuple[list[str], int, int]:
    """Returns the events to evaluate, the number trained on, and the number left out as trained."""
    trained = {digest for stage in TRAINED for digest in load_model(folder / stage).trained_on}
    names = find_events(events)
    seen = {
        name
        for name in follow(names, len(names), "reading events")
        if event_digest(_read_with_truth(folder, events, name)) in trained
    }
    if len(seen) == len(names):
        return names, len(names), 0
    return [name for name in names if name not in seen], 0, len(seen)


def _read_with_truth(folder: Path, events: Path, name: str) -> Event:
    event = read_event(events, name)
    if event.truth is None:
        raise InputError(
            f"{events}: {name} has no truth, which an evaluation needs; add {name}-truth.csv, or "
            "particle_id to ColliderML's hits, or only make its tracks: 'bigtrk reconstruct "
            f"{folder} {events} OUT'"
        )
    return event
