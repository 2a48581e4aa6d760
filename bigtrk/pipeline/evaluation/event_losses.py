"""An event's way through a pipeline, and where its particles are lost.

Shapes: N hits, E edges, C particles that are to be found.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bigtrk.events.event import NOISE, Event
from bigtrk.graphs.builders.radius import true_pairs
from bigtrk.pipeline.evaluation.event_truth import EventTruth, Mask, StageCounts
from bigtrk.pipeline.evaluation.particle_axes import particle_axes
from bigtrk.pipeline.passage import Passage
from bigtrk.pipeline.stages import Pipeline
from bigtrk.tracks.bins import Bins
from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.edge_metrics import score_counts
from bigtrk.tracks.evaluation import (
    JudgedTracks,
    budget_matching,
    category_bins,
    first_that_fits,
    judge_hits,
)
from bigtrk.tracks.matching import Criteria, Ids

EVENT, BUILDER = "event", "builder"  # what there is before the first stage; the last one
CATEGORIES = ("found", "hits", "radius", "filter", "true_edges_cut", "merged", "builder")


@dataclass(frozen=True)
class EventLosses:
    """An event of `hits` hits after the pipeline: its tracks judged by every matching, what each
    stage leaves by its name, from EVENT to BUILDER, the classifier's `score_counts` [3, B], and
    particles by CATEGORIES, also in bins.
    """

    hits: int
    tracks: JudgedTracks
    stages: dict[str, StageCounts]
    scores: Ids
    losses: list[int]
    loss_bins: Bins
    passage: Passage


def event_losses(
    pipeline: Pipeline, event: Event, criteria: Criteria, edge_cut: float
) -> EventLosses:
    """Sends an event with truth through a pipeline and sorts its particles: each is in the first of
    CATEGORIES that fits, in the style and mode of the loss budget.

    found: a track matches it. hits: even all true edges of the event together join fewer of its
    hits than a track has. radius: those in the radius graph do; filter: those that the filter
    leaves; true_edges_cut: those with a score of the classifier above `edge_cut`. merged: all edges
    above it, false ones too, join its hits to others. builder: they would find it.

    Raises:
        InputError: the event has no truth, or lacks a feature that a stage reads.
    """
    truth = EventTruth(event, budget_matching(criteria.matchings()))
    stages = _WatchedStages(truth, edge_cut)
    tracks, passage = pipeline.tracks(event, criteria.min_hits, stages)
    found = truth.found(tracks)
    category = first_that_fits([found, *(~findable for findable in stages.findable)])
    axes = particle_axes(event, truth.wanted, criteria.min_hits)
    return EventLosses(
        hits=len(tracks),
        tracks=judge_hits(event, tracks, criteria.matchings()),
        stages={**stages.counts, BUILDER: stages.of_tracks(event, tracks, found)},
        scores=stages.scores,
        losses=np.bincount(category, minlength=len(CATEGORIES)).tolist(),
        loss_bins=category_bins(category, CATEGORIES, axes),
        passage=passage,
    )


class _WatchedStages:
    """Counts what stages leave (Watch), and says which particles can then still be found.

    findable: of each category of loss but the last, in their order, a mask [C]. scores: the
    classifier's `score_counts` [3, B].
    """

    scores: Ids

    def __init__(self, truth: EventTruth, edge_cut: float) -> None:
        self._truth, self._edge_cut = truth, edge_cut
        self.counts: dict[str, StageCounts] = {}
        self.findable: list[Mask] = []
        self(EVENT, truth.true, None)

    def __call__(self, stage: str, edges: Ids, scores: NDArray[np.floating] | None) -> None:
        kept = edges if scores is None else edges[:, scores > self._edge_cut]
        are_true = self._truth.are_true(kept)
        self.findable.append(self._truth.found_by_components(kept[:, are_true]))
        self.counts[stage] = self._truth.counts(kept, are_true, self.findable[-1])
        if scores is not None:
            true = self._truth.are_true(edges)
            self.scores = score_counts(scores, true, self._truth.are_target(edges, true))
            self.findable.append(self._truth.found_by_components(kept))

    def of_tracks(self, event: Event, tracks: Ids, found: Mask) -> StageCounts:
        """Counts the edges that would be true if each track were a particle: track of each hit [N];
        found [C].
        """
        # A hit in no track becomes noise.
        made = {"hit_id": event.hits["hit_id"], "particle_id": tracks - NO_TRACK + NOISE}
        edges = true_pairs(replace(event, particles=None, truth=made))
        return self._truth.counts(edges, self._truth.are_true(edges), found)
