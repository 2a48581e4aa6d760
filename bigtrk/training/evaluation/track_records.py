"""Makes records of what `tracks` measures."""

from bigtrk.records.evaluation import (
    Binned,
    CutRecord,
    EdgeBins,
    EdgeScores,
    Judged,
    MatchingRecord,
    TrackBins,
    TrackRecord,
)
from bigtrk.tracks.bins import BinnedRatio, Bins
from bigtrk.tracks.builders.registry import make_builder
from bigtrk.tracks.edge_metrics import KINDS, SCORE_LIMITS
from bigtrk.tracks.evaluation import JudgedSummary, MatchingSummary, TracksSummary
from bigtrk.tracks.matching import Ids


def edge_bins_record(bins: Bins) -> EdgeBins:
    """Makes the record of edges in bins."""
    return EdgeBins(**_binned(bins))


def edge_scores_record(counts: Ids) -> EdgeScores:
    """Makes the record of edges by score: counts [3, B] of `score_counts`."""
    return EdgeScores(
        limits=SCORE_LIMITS, **dict(zip(KINDS, map(tuple, counts.tolist()), strict=True))
    )


def track_record(summary: TracksSummary) -> TrackRecord:
    """Makes the record of tracks."""
    options, model = summary.options, judged_record(summary.model)
    return TrackRecord(
        trackml_score=model.trackml_score,
        matching=model.matching,
        builder=options.builder.value,
        score_cut=make_builder(options.builder, options.score_cut).score_cut,
        min_hits=options.min_hits,
        pt_min=options.pt_min,
        matching_fraction=options.matching_fraction,
        perfect=judged_record(summary.perfect),
        losses=summary.losses,
        loss_bins=_binned(summary.loss_bins),
        scan=tuple(
            CutRecord(score_cut=cut, **_matching(found).model_dump())
            for cut, found in summary.scan.items()
        ),
    )


def judged_record(summary: JudgedSummary) -> Judged:
    """Makes the record of tracks by every matching."""
    return Judged(
        trackml_score=summary.trackml_score,
        matching=tuple(_matching(each) for each in summary.matchings),
    )


def _matching(summary: MatchingSummary) -> MatchingRecord:
    metrics = summary.metrics
    return MatchingRecord(
        style=summary.matching.style,
        mode=summary.matching.mode,
        efficiency=metrics.efficiency,
        fake_rate=metrics.fake_rate,
        duplicate_rate=metrics.duplicate_rate,
        n_particles=metrics.n_particles,
        n_reconstructed=metrics.n_reconstructed,
        n_tracks=metrics.n_tracks,
        n_matched=metrics.n_matched,
        bins=None if summary.bins is None else TrackBins(**_binned(summary.bins)),
    )


def _binned(bins: Bins) -> dict[str, Binned]:
    return {name: binned(ratio) for name, ratio in bins.items()}


def binned(ratio: BinnedRatio) -> Binned:
    """Makes the record of a ratio in bins."""
    bins = len(ratio.edges) - 1
    part, whole = ratio.part.tolist(), ratio.whole.tolist()
    return Binned(
        edges=ratio.edges,
        part=part[:bins],
        whole=whole[:bins],
        outside=(part[bins], whole[bins]),
        unknown=(part[bins + 1], whole[bins + 1]),
    )
