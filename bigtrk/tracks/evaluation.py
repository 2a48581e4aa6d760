"""Tracks of whole events, built from edge scores and judged in every style and mode.

Shapes: N hits, E edges.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.graphs.sector import Sector
from bigtrk.tracks.bins import Bins
from bigtrk.tracks.builders.builder import ScoredGraph, TrackBuilder
from bigtrk.tracks.builders.names import BuilderName
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.hit_columns import hit_eta, scored_graph
from bigtrk.tracks.losses import CATEGORIES, loss_bins, loss_categories
from bigtrk.tracks.matching import (
    Criteria,
    Judgement,
    Matching,
    Mode,
    Particles,
    Style,
    TrackMetrics,
    match_tracks,
)
from bigtrk.tracks.overlaps import Ids
from bigtrk.tracks.public_scores.trackml_score import score_if_weighted
from bigtrk.tracks.track_bins import track_bins

BINNED_STYLE: Style = "ATLAS"
BUDGET: tuple[Style, Mode] = (BINNED_STYLE, "strict")  # the style and mode of the loss budget
PERFECT_CUT = 0.5  # perfect scores are 0 or 1
SCAN_CUTS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
)


@dataclass(frozen=True)
class TrackOptions:
    """The choice of tracks and particles: `builder` makes tracks of at least `min_hits` hits from
    edges with a score above `score_cut` (None: the builder's own); particles of at least `min_hits`
    hits and `pt_min` (GeV) are to be found. The same by each of `scan_cuts`, in short.
    """

    score_cut: float | None = None
    min_hits: int = 3
    pt_min: float = 1.0
    matching_fraction: float = 0.5
    builder: BuilderName = BuilderName.COMPONENTS
    scan_cuts: tuple[float, ...] = ()

    def matchings(self) -> list[Matching]:
        """Lists every style in every mode."""
        return Criteria(self.min_hits, self.pt_min, self.matching_fraction).matchings()

    def budget_matching(self) -> Matching:
        """Returns the one in style and mode BUDGET."""
        return budget_matching(self.matchings())


def budget_matching(matchings: Iterable[Matching]) -> Matching:
    """Returns the one in style and mode BUDGET."""
    return next(each for each in matchings if (each.style, each.mode) == BUDGET)


@dataclass(frozen=True)
class JudgedTracks:
    """One event's tracks from one set of scores: metrics in the order of TrackOptions.matchings,
    bins likewise (None in other styles than BINNED_STYLE), and the TrackML score.
    """

    metrics: list[TrackMetrics]
    bins: list[Bins | None]
    trackml_score: float | None


@dataclass(frozen=True)
class EventTracks:
    """One event's tracks from the model's scores and from perfect ones, and the loss budget:
    particles by CATEGORIES in the style and mode BUDGET. scan: the model's tracks by each of
    TrackOptions.scan_cuts, in the style and mode BUDGET.
    """

    model: JudgedTracks
    perfect: JudgedTracks
    losses: list[int]
    loss_bins: Bins
    scan: dict[float, TrackMetrics]


def score_tracks(event: Sector, scores: Tensor, options: TrackOptions) -> EventTracks:
    """Builds and judges the tracks of a whole event with truth: scores [E].

    Raises:
        InputError: the event's particles are unknown, or where its hits are.
    """
    if event.particle_id is None or event.particles is None:
        lacking = "table of particles" if event.particles is None else "particle ids"
        raise InputError(
            f"{event.event}: has no {lacking}, so its tracks cannot be matched; "
            f"leave --tracks out, or build the graph from TrackML files with truth"
        )
    assert event.y is not None
    true = event.y.numpy()
    graph = scored_graph(event, scores)
    builder = make_builder(options.builder, options.score_cut)
    model = _make(event, graph, builder, options)
    perfect_builder = make_builder(options.builder, PERFECT_CUT)
    perfect = _make(event, replace(graph, scores=true.astype(np.float64)), perfect_builder, options)
    true_kept = _make(event, replace(graph, scores=graph.scores * true), builder, options)
    found, perfectly, by_true_edges = (
        tracks.judgements[BUDGET].reconstructed for tracks in (model, perfect, true_kept)
    )
    # The candidates of strict mode do not depend on the tracks.
    particle = model.judgements[BUDGET].particle
    has_true_edges = np.isin(
        event.particles.particle_id[particle], event.particle_id[event.edge_index[1][event.y]]
    )
    category = loss_categories(found, has_true_edges, perfectly, by_true_edges)
    return EventTracks(
        model=_judged(event, event.particles, model),
        perfect=_judged(event, event.particles, perfect),
        losses=np.bincount(category, minlength=len(CATEGORIES)).tolist(),
        loss_bins=loss_bins(category, particle, event.particles),
        scan=_scan(event, graph, options),
    )


@dataclass(frozen=True)
class _Tracks:
    """Tracks: track_id [N], and a judgement per matching."""

    track_id: Ids
    judgements: dict[tuple[Style, Mode], Judgement]


def _make(
    event: Sector, graph: ScoredGraph, builder: TrackBuilder, options: TrackOptions
) -> _Tracks:
    track_id = builder(graph, options.min_hits)
    judgements = {
        (matching.style, matching.mode): _judgement(event, track_id, matching)
        for matching in options.matchings()
    }
    return _Tracks(track_id, judgements)


def _judgement(event: Sector, track_id: Ids, matching: Matching) -> Judgement:
    assert event.particle_id is not None
    assert event.particles is not None
    particles = listed_particles(event.particles)
    return match_tracks(track_id, event.particle_id.numpy(), particles, matching)


def listed_particles(table: ParticleTable) -> Particles:
    """Returns what matching reads of a graph's particles."""
    return Particles(table.particle_id.numpy(), table.pt.numpy(), table.nhits.numpy())


def _scan(event: Sector, graph: ScoredGraph, options: TrackOptions) -> dict[float, TrackMetrics]:
    matching = options.budget_matching()
    tracks = {
        cut: make_builder(options.builder, cut)(graph, options.min_hits)
        for cut in options.scan_cuts
    }
    return {cut: _judgement(event, found, matching).metrics for cut, found in tracks.items()}


def _judged(event: Sector, particles: ParticleTable, tracks: _Tracks) -> JudgedTracks:
    eta = hit_eta(event)
    assert eta is not None  # tracks were made of hits whose r and z are stored
    return JudgedTracks(
        metrics=[judgement.metrics for judgement in tracks.judgements.values()],
        bins=[
            track_bins(judgement, particles, tracks.track_id, eta)
            if style == BINNED_STYLE
            else None
            for (style, _), judgement in tracks.judgements.items()
        ],
        trackml_score=_trackml_score(tracks.track_id, event),
    )


def _trackml_score(track_id: Ids, event: Sector) -> float | None:
    assert event.particle_id is not None
    weight = None if event.hit_weight is None else event.hit_weight.numpy()
    return score_if_weighted(track_id, event.particle_id.numpy(), weight)
