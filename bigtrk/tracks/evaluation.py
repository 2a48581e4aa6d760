"""Tracks of whole events, built from edge scores and judged in every style and mode."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.sector import Sector
from bigtrk.tracks.components import build_tracks
from bigtrk.tracks.matching import (
    Matching,
    Mode,
    Particles,
    Style,
    TrackMetrics,
    match_tracks,
    pooled,
)
from bigtrk.tracks.trackml_score import trackml_score


@dataclass(frozen=True)
class TrackOptions:
    """Edges with a score above `score_cut` make tracks of at least `min_hits` hits; particles of
    at least `min_hits` hits and `pt_min` (GeV) are to be found.
    """

    score_cut: float = 0.5
    min_hits: int = 3
    pt_min: float = 1.0
    matching_fraction: float = 0.5

    def matchings(self) -> list[Matching]:
        """Every style in every mode."""
        return [
            Matching(style, mode, self.matching_fraction, self.pt_min, self.min_hits, self.min_hits)
            for style, mode in product(get_args(Style), get_args(Mode))
        ]


@dataclass(frozen=True)
class EventTracks:
    """One event's matching, in the order of TrackOptions.matchings, and its TrackML score."""

    metrics: list[TrackMetrics]
    trackml_score: float | None


def score_tracks(event: Sector, scores: Tensor, options: TrackOptions) -> EventTracks:
    """Build and judge the tracks of a whole event: scores [E].

    Raises:
        InputError: the event's hits or particles are unknown.
    """
    if event.particle_id is None or event.particles is None:
        raise InputError(
            f"{event.event}: has no particle ids, so its tracks cannot be matched; "
            f"leave --tracks out, or build the graph from TrackML files with truth"
        )
    track_id = build_tracks(
        event.edge_index.numpy(),
        scores.numpy(),
        event.n_nodes,
        options.score_cut,
        options.min_hits,
    )
    particle_id = event.particle_id.numpy()
    particles = Particles(
        event.particles.particle_id.numpy(),
        event.particles.pt.numpy(),
        event.particles.nhits.numpy(),
    )
    return EventTracks(
        [match_tracks(track_id, particle_id, particles, m) for m in options.matchings()],
        _trackml_score(track_id, particle_id, event),
    )


def _trackml_score(track_id: Any, particle_id: Any, event: Sector) -> float | None:
    """None where the truth gives no weights, as in files of the test set."""
    if event.hit_weight is None or not np.isfinite(event.hit_weight.numpy()).all():
        return None
    return trackml_score(track_id, particle_id, event.hit_weight.numpy())


def summarise_tracks(events: Sequence[EventTracks], options: TrackOptions) -> dict[str, Any]:
    """Rates over all events' tracks and particles; the TrackML score is the mean over events."""
    rows = []
    for i, matching in enumerate(options.matchings()):
        total = pooled([event.metrics[i] for event in events])
        rows.append(
            {
                "style": matching.style,
                "mode": matching.mode,
                "efficiency": total.efficiency,
                "fake_rate": total.fake_rate,
                "duplicate_rate": total.duplicate_rate,
                "n_particles": total.n_particles,
                "n_reconstructed": total.n_reconstructed,
                "n_tracks": total.n_tracks,
                "n_matched": total.n_matched,
            }
        )
    known = [event.trackml_score for event in events if event.trackml_score is not None]
    return {
        "score_cut": options.score_cut,
        "min_hits": options.min_hits,
        "pt_min": options.pt_min,
        "matching_fraction": options.matching_fraction,
        "trackml_score": sum(known) / len(known) if known else None,
        "matching": rows,
    }
