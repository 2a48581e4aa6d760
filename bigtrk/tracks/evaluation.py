"""Judges tracks, built from edge scores or read from files, in every matching style and mode.

Shapes: N hits, E edges, T tracks, C particles to be found.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.truth import hit_particles, hit_weights, particle_kinematics
from bigtrk.graphs.event_graph import ParticleTable, Sector
from bigtrk.records.evaluation import CutRecord, Judged, MatchingRecord, TrackRecord
from bigtrk.tracks.bins import (
    ETA_EDGES,
    Axes,
    Bins,
    Floats,
    added,
    axes_of,
    binned_ratio,
    hit_column,
    hit_eta,
)
from bigtrk.tracks.builders.builder import NO_TRACK, ScoredGraph
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.matching import (
    Criteria,
    Ids,
    Judgement,
    Mask,
    Matching,
    Mode,
    Particles,
    Style,
    TrackMetrics,
    match_tracks,
    pooled,
    trackml_score,
)
from bigtrk.tracks.names import BuilderName


def scored_graph(event: Sector, scores: Tensor) -> ScoredGraph:
    """Makes the input of track builders from a whole event and its scores [E]. InputError if the
    graph does not store the positions of its hits.
    """
    r, phi, z = (hit_column(event, name) for name in ("r", "phi", "z"))
    position = np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=1)
    modules = None if event.modules is None else event.modules.numpy()
    return ScoredGraph(event.edge_index.numpy(), scores.numpy(), position, modules)


def track_bins(
    judgement: Judgement, particles: ParticleTable, track_id: Ids, hit_eta: Floats
) -> Bins:
    """Bins one event's particles and tracks by outcome: track_id [N], hit_eta [N].

    efficiency_by_pt and so on, by `axes_of`: reconstructed among reconstructable particles.
    duplicates_by_pt and so on: particles with more than one track, among the reconstructed.
    fakes_by_eta: tracks that match no particle, by the mean eta of their hits.
    """
    found = judgement.reconstructed
    twice = judgement.n_tracks[found] > 1
    used, tracks = track_id != NO_TRACK, judgement.track_id
    total = np.bincount(track_id[used], weights=hit_eta[used])
    track_eta = total[tracks] / np.bincount(track_id[used])[tracks]
    bins = {"fakes_by_eta": binned_ratio(track_eta, ~judgement.matched, ETA_EDGES)}
    for name, (column, edges) in axes_of(particles).items():
        values = column[judgement.particle]
        bins[f"efficiency_by_{name}"] = binned_ratio(values, found, edges)
        bins[f"duplicates_by_{name}"] = binned_ratio(values[found], twice, edges)
    return bins


CATEGORIES = ("found", "no_true_edges", "too_few_true_edges", "true_edges_cut", "merged")


def losses_of(
    conditions: Sequence[Mask], names: Sequence[str], axes: Axes
) -> tuple[list[int], Bins]:
    """Puts each particle in the first of the categories `names` whose condition it meets; the last
    has none. Returns the number of particles in each, and bins of its share, "NAME_by_AXIS".

    conditions: at least one, [C] each. axes: for each quantity the particles' values [C] and the
    limits of its bins.
    """
    category = np.argmax([*conditions, np.ones_like(conditions[0])], axis=0)
    return np.bincount(category, minlength=len(names)).tolist(), {
        f"{name}_by_{axis}": binned_ratio(values, category == place, edges)
        for axis, (values, edges) in axes.items()
        for place, name in enumerate(names)
    }


BINNED_STYLE: Style = "ATLAS"
BUDGET: tuple[Style, Mode] = (BINNED_STYLE, "strict")  # the style and mode of the loss budget
PERFECT_CUT = 0.5  # perfect scores are 0 or 1
SCAN_CUTS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
)


@dataclass(frozen=True)
class TrackOptions(Criteria):
    """How tracks are built and judged: by `builder`, from edges with a score above `score_cut`
    (None: the builder's default). scan_cuts: further score cuts at which tracks are judged.
    """

    score_cut: float | None = None
    builder: BuilderName = BuilderName.COMPONENTS
    scan_cuts: tuple[float, ...] = ()


def budget_matching(matchings: Iterable[Matching]) -> Matching:
    """Returns the matching with the style and mode of the loss budget (BUDGET)."""
    return next(each for each in matchings if (each.style, each.mode) == BUDGET)


@dataclass(frozen=True)
class JudgedTracks:
    """One event's tracks from one set of scores, judged: metrics in the order of
    TrackOptions.matchings(), bins likewise (None except in BINNED_STYLE), and the TrackML score.
    """

    metrics: list[TrackMetrics]
    bins: list[Bins | None]
    trackml_score: float | None


@dataclass(frozen=True)
class EventTracks:
    """One event's tracks, judged with the model's scores and with perfect ones, and the loss
    budget: numbers of particles by CATEGORIES in the style and mode BUDGET. scan: the model's
    tracks at each of TrackOptions.scan_cuts, in the style and mode BUDGET.
    """

    model: JudgedTracks
    perfect: JudgedTracks
    losses: list[int]
    loss_bins: Bins
    scan: dict[float, TrackMetrics]


def score_tracks(event: Sector, scores: Tensor, options: TrackOptions) -> EventTracks:
    """Builds and judges the tracks of a whole event with truth: scores [E].

    Each particle falls in the first of CATEGORIES that fits. found: a track of the model matches
    it. no_true_edges: the graph holds no true edge of it. too_few_true_edges: even perfect scores
    (all true edges kept and no other) do not find it. true_edges_cut: nor do the true edges that
    the model keeps, taken alone. merged: those find it, but the false edges kept join its hits to
    others. Raises InputError if the event's particles, or the positions of its hits, are unknown.
    """
    if event.particle_id is None or event.particles is None:
        lacking = "table of particles" if event.particles is None else "particle ids"
        raise InputError(
            f"{event.event}: has no {lacking}, so its tracks cannot be matched; "
            f"leave --tracks out, or build the graph from events with truth"
        )
    assert event.y is not None
    true, particle_id, table = event.y.numpy(), event.particle_id.numpy(), event.particles
    particles, graph = listed_particles(table), scored_graph(event, scores)
    weight = None if event.hit_weight is None else event.hit_weight.numpy()
    eta = hit_eta(event)
    assert eta is not None  # tracks are made of hits whose r and z are stored
    every = options.matchings()
    budget = [budget_matching(every)]

    def judged(
        graph: ScoredGraph, cut: float | None, matchings: Sequence[Matching] = every
    ) -> _Tracks:
        track_id = make_builder(options.builder, cut)(graph, options.min_hits)
        return track_id, {
            (one.style, one.mode): match_tracks(track_id, particle_id, particles, one)
            for one in matchings
        }

    def summary(track_id: Ids, judgements: dict[tuple[Style, Mode], Judgement]) -> JudgedTracks:
        return JudgedTracks(
            metrics=[judgement.metrics for judgement in judgements.values()],
            bins=[
                track_bins(judgement, table, track_id, eta) if style == BINNED_STYLE else None
                for (style, _), judgement in judgements.items()
            ],
            trackml_score=trackml_score(track_id, particle_id, weight),
        )

    model = judged(graph, options.score_cut)
    perfect = judged(replace(graph, scores=true.astype(np.float64)), PERFECT_CUT)
    true_kept = judged(replace(graph, scores=graph.scores * true), options.score_cut, budget)
    # The particles to be found in strict mode do not depend on the tracks.
    particle = model[1][BUDGET].particle
    with_true_edges = event.particle_id[event.edge_index[1][event.y]]
    has_true_edges = np.isin(table.particle_id[particle], with_true_edges)
    found, *others = (tracks[1][BUDGET].reconstructed for tracks in (model, perfect, true_kept))
    conditions = [found, ~has_true_edges, *(~other for other in others)]
    axes = {axis: (values[particle], edges) for axis, (values, edges) in axes_of(table).items()}
    losses, loss_bins = losses_of(conditions, CATEGORIES, axes)
    return EventTracks(
        model=summary(*model),
        perfect=summary(*perfect),
        losses=losses,
        loss_bins=loss_bins,
        scan={cut: judged(graph, cut, budget)[1][BUDGET].metrics for cut in options.scan_cuts},
    )


# The track of each hit [N], and a judgement per matching.
_Tracks = tuple[Ids, dict[tuple[Style, Mode], Judgement]]


def listed_particles(table: ParticleTable) -> Particles:
    """Converts a graph's particle table to the particles that matching reads."""
    return Particles(table.particle_id.numpy(), table.pt.numpy(), table.nhits.numpy())


def judge_hits(event: Event, track_id: Ids, matchings: Sequence[Matching]) -> JudgedTracks:
    """Judges tracks by each of `matchings`, without bins. track_id [N]: the track of each hit."""
    particle_id, particles = hit_particles(event), true_particles(event)
    return JudgedTracks(
        metrics=[
            match_tracks(track_id, particle_id, particles, matching).metrics
            for matching in matchings
        ],
        bins=[None] * len(matchings),
        trackml_score=trackml_score(track_id, particle_id, hit_weights(event)),
    )


def true_particles(event: Event) -> Particles:
    """Returns all particles of an event's truth for matching, in order of `particle_kinematics`."""
    columns = particle_kinematics(event)
    return Particles(
        columns["particle_id"].astype(np.int64, copy=False),
        columns["pt"].astype(np.float64, copy=False),
        columns["nhits"].astype(np.int64, copy=False),
    )


def summarise_tracks(events: Sequence[EventTracks], options: TrackOptions) -> TrackRecord:
    """Combines the judged tracks of several events (at least one) into one record."""
    losses = np.sum([event.losses for event in events], axis=0).tolist()
    model = summarise_judged([event.model for event in events], options.matchings())
    matching = budget_matching(options.matchings())
    return TrackRecord(
        **dict(model),
        builder=options.builder.value,
        score_cut=make_builder(options.builder, options.score_cut).score_cut,
        min_hits=options.min_hits,
        pt_min=options.pt_min,
        matching_fraction=options.matching_fraction,
        perfect=summarise_judged([event.perfect for event in events], options.matchings()),
        losses=dict(zip(CATEGORIES, losses, strict=True)),
        loss_bins=added([event.loss_bins for event in events]),
        scan=tuple(
            CutRecord(score_cut=cut, **_matched(matching, [event.scan[cut] for event in events]))
            for cut in options.scan_cuts
        ),
    )


def summarise_judged(events: Sequence[JudgedTracks], matchings: Sequence[Matching]) -> Judged:
    """Adds up events (at least one), each judged by `matchings` in this order. The TrackML score is
    the mean over the events that have one, or None.
    """
    records = []
    for i, matching in enumerate(matchings):
        known = [bins for event in events if (bins := event.bins[i]) is not None]
        records.append(
            MatchingRecord(
                **_matched(matching, [event.metrics[i] for event in events]),
                bins=added(known) if known else None,
            )
        )
    scores = [event.trackml_score for event in events if event.trackml_score is not None]
    return Judged(trackml_score=fmean(scores) if scores else None, matching=tuple(records))


def _matched(matching: Matching, events: Sequence[TrackMetrics]) -> dict[str, Any]:
    """Returns the record entries of a matching: its names, rates and counts over all events."""
    metrics = pooled(events)
    return {
        "style": matching.style,
        "mode": matching.mode,
        "efficiency": metrics.efficiency,
        "fake_rate": metrics.fake_rate,
        "duplicate_rate": metrics.duplicate_rate,
        **vars(metrics),
    }
