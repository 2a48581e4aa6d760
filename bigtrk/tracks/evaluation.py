"""Tracks of whole events, built from edge scores and judged in every style and mode.

Shapes: N hits, E edges.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.graphs.sector import Sector
from bigtrk.tracks.bins import Bins
from bigtrk.tracks.components import build_tracks
from bigtrk.tracks.edge_bins import hit_eta
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
from bigtrk.tracks.track_bins import track_bins
from bigtrk.tracks.trackml_score import score_if_weighted

BINNED_STYLE: Style = "ATLAS"
BUDGET: tuple[Style, Mode] = (BINNED_STYLE, "strict")  # the style and mode of the loss budget
PERFECT_CUT = 0.5  # perfect scores are 0 or 1


@dataclass(frozen=True)
class TrackOptions:
    """The choice of tracks and particles: edges with a score above `score_cut` make tracks of at
    least `min_hits` hits; particles of at least `min_hits` hits and `pt_min` (GeV) are to be found.
    """

    score_cut: float = 0.5
    min_hits: int = 3
    pt_min: float = 1.0
    matching_fraction: float = 0.5

    def matchings(self) -> list[Matching]:
        """Lists every style in every mode."""
        return Criteria(self.min_hits, self.pt_min, self.matching_fraction).matchings()


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
    particles by CATEGORIES in the style and mode BUDGET.
    """

    model: JudgedTracks
    perfect: JudgedTracks
    losses: list[int]
    loss_bins: Bins


def score_tracks(event: Sector, scores: Tensor, options: TrackOptions) -> EventTracks:
    """Builds and judges the tracks of a whole event with truth: scores [E].

    Raises:
        InputError: the event's hits or particles are unknown.
    """
    if event.particle_id is None or event.particles is None:
        raise InputError(
            f"{event.event}: has no particle ids, so its tracks cannot be matched; "
            f"leave --tracks out, or build the graph from TrackML files with truth"
        )
    assert event.y is not None
    model = _make(event, scores, options.score_cut, options)
    perfect = _make(event, event.y.double(), PERFECT_CUT, options)
    true_kept = _make(event, scores * event.y, options.score_cut, options)
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
    )


@dataclass(frozen=True)
class _Tracks:
    """Tracks: track_id [N], and a judgement per matching."""

    track_id: Ids
    judgements: dict[tuple[Style, Mode], Judgement]


def _make(event: Sector, scores: Tensor, score_cut: float, options: TrackOptions) -> _Tracks:
    assert event.particle_id is not None
    assert event.particles is not None
    track_id = build_tracks(
        event.edge_index.numpy(), scores.numpy(), event.n_nodes, score_cut, options.min_hits
    )
    particles = Particles(
        event.particles.particle_id.numpy(),
        event.particles.pt.numpy(),
        event.particles.nhits.numpy(),
    )
    judgements = {
        (matching.style, matching.mode): match_tracks(
            track_id, event.particle_id.numpy(), particles, matching
        )
        for matching in options.matchings()
    }
    return _Tracks(track_id, judgements)


def _judged(event: Sector, particles: ParticleTable, tracks: _Tracks) -> JudgedTracks:
    eta = hit_eta(event)
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
