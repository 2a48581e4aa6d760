"""The tracks of several events, judged as one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bigtrk.tracks.bins import Bins, added
from bigtrk.tracks.evaluation import EventTracks, JudgedTracks, TrackOptions
from bigtrk.tracks.losses import CATEGORIES
from bigtrk.tracks.matching import Matching, TrackMetrics, pooled


@dataclass(frozen=True)
class MatchingSummary:
    """Tracks and particles of all events by one matching; bins are None where it has none."""

    matching: Matching
    metrics: TrackMetrics
    bins: Bins | None


@dataclass(frozen=True)
class JudgedSummary:
    """The tracks of all events from one set of scores, or from files: in the order of
    Criteria.matchings, and the mean TrackML score over the events that have one, None if none has.
    """

    matchings: tuple[MatchingSummary, ...]
    trackml_score: float | None


@dataclass(frozen=True)
class TracksSummary:
    """The tracks of all events from the model's scores and from perfect ones, and the loss budget:
    particles by category. scan: the model's tracks by each of TrackOptions.scan_cuts.
    """

    options: TrackOptions
    model: JudgedSummary
    perfect: JudgedSummary
    losses: dict[str, int]
    loss_bins: Bins
    scan: dict[float, MatchingSummary]


def summarise_tracks(events: Sequence[EventTracks], options: TrackOptions) -> TracksSummary:
    """Adds up the tracks and particles of events (at least one)."""
    losses = np.sum([event.losses for event in events], axis=0).tolist()
    return TracksSummary(
        options=options,
        model=summarise_judged([event.model for event in events], options.matchings()),
        perfect=summarise_judged([event.perfect for event in events], options.matchings()),
        losses=dict(zip(CATEGORIES, losses, strict=True)),
        loss_bins=added([event.loss_bins for event in events]),
        scan=_scan([event.scan for event in events], options),
    )


def _scan(
    events: Sequence[dict[float, TrackMetrics]], options: TrackOptions
) -> dict[float, MatchingSummary]:
    matching = options.budget_matching()
    return {
        cut: MatchingSummary(matching, pooled([event[cut] for event in events]), bins=None)
        for cut in options.scan_cuts
    }


def summarise_judged(
    events: Sequence[JudgedTracks], matchings: Sequence[Matching]
) -> JudgedSummary:
    """Adds up events (at least one), each judged by `matchings` in this order."""
    summaries = tuple(
        MatchingSummary(
            matching=matching,
            metrics=pooled([event.metrics[i] for event in events]),
            bins=_bins([event.bins[i] for event in events]),
        )
        for i, matching in enumerate(matchings)
    )
    known = [event.trackml_score for event in events if event.trackml_score is not None]
    return JudgedSummary(summaries, sum(known) / len(known) if known else None)


def _bins(events: Sequence[Bins | None]) -> Bins | None:
    known = [bins for bins in events if bins is not None]
    return added(known) if known else None
