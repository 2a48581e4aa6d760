"""Plots of an evaluation against the score of edges: what a cut keeps, and which is the best."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from bigtrk.records.evaluation import CutRecord, EdgeScores, EvaluationRecord
from bigtrk.reports.elements.charts import Plot, colour, curve
from bigtrk.reports.elements.estimates import wilson

TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
ROC = "ROC: edge efficiency, %"
TRACKS_BY_CUT, EDGES_BY_CUT = "Tracks against the score cut, %", "Edges against the score cut, %"
KINDS = {"target": "target edges", "other": "other true edges", "false": "false edges"}
EDGES_RULE = (
    "Edges of all events together. The best cut has the highest harmonic mean of efficiency and "
    "purity."
)
TRACKS_RULE = (
    "Tracks: ATLAS matching, strict mode, with Wilson's intervals. The best cut of those tried has "
    "the highest harmonic mean of track efficiency and of the share of tracks that are no fakes; "
    "choose it on events that no figure you quote rests on."
)


@dataclass(frozen=True)
class Kept:
    """The edges above a cut as shares: of the target, of all others, and the target's of target and
    false ones (None where no edge is kept).
    """

    cut: float
    efficiency: float
    others: float
    purity: float | None

    @property
    def harmonic_mean(self) -> float:
        """Returns that of efficiency and purity."""
        return _harmonic_mean(self.efficiency, self.purity or 0.0)


def kept_by_cut(scores: EdgeScores) -> list[Kept]:
    """Computes what each limit of the score keeps as a cut; nothing without edges of both kinds."""
    counts = (scores.target, scores.other, scores.false)
    above = [[0, *accumulate(reversed(kind))][::-1] for kind in counts]
    n_target, n_others = above[0][0], above[1][0] + above[2][0]
    if not n_target or not n_others:
        return []
    return [
        Kept(
            cut,
            target / n_target,
            (other + false) / n_others,
            target / (target + false) if target + false else None,
        )
        for cut, target, other, false in zip(scores.limits, *above, strict=True)
    ]


def best_scan(scan: Sequence[CutRecord]) -> CutRecord | None:
    """Returns the cut with the best tracks; None where none has any."""
    known = [cut for cut in scan if cut.efficiency and cut.fake_rate is not None]
    return max(known, key=_track_mean, default=None)


def score_plots(record: EvaluationRecord) -> Iterator[Plot]:
    """Makes plots of tracks against the cut, where cuts were tried, and of edges."""
    if record.tracks:
        yield _tracks(record.tracks.scan)
    if record.scores:
        yield from edge_plots(record.scores, record.edge_metrics.auc)


def edge_plots(scores: EdgeScores, auc: float | None) -> Iterator[Plot]:
    """Makes plots of ROC, purity and efficiency where there are edges of both kinds, and
    histograms. auc: the mean of events, where it is known.
    """
    if kept := kept_by_cut(scores):
        best = max(kept, key=lambda each: each.harmonic_mean)
        yield _roc(kept, best, "" if auc is None else f", AUC {100 * auc:.3f} %")
        yield _purity(kept, best)
        yield _edges(kept, best)
    yield _histogram(scores)


def _tracks(scan: Sequence[CutRecord]) -> Plot:
    rates = (
        ("track efficiency", "efficiency", "n_particles"),
        ("fake tracks", "fake_rate", "n_tracks"),
    )
    lines = []
    for number, (name, rate, whole) in enumerate(rates):
        rows = [
            _with_interval(logit(cut.score_cut), getattr(cut, rate), getattr(cut, whole))
            for cut in scan
            if getattr(cut, rate) is not None
        ]
        lines.append(curve(name, rows, number))
    best = best_scan(scan)
    marks = [] if best is None else [_best(logit(best.score_cut), best.efficiency, best.score_cut)]
    return Plot(TRACKS_BY_CUT, "score cut", [*lines, *marks], _score_axis())


def _with_interval(x: float, share: float, whole: int | None) -> tuple[float, ...]:
    ends = (100 * end for end in wilson(share, whole)) if whole and 0 <= share <= 1 else ()
    return (x, 100 * share, *ends)


def _roc(kept: Sequence[Kept], best: Kept, auc: str) -> Plot:
    shown = [each for each in kept if each.others]
    line = curve(f"all cuts{auc}", [(100 * x.others, 100 * x.efficiency) for x in shown], 0)
    marks = [_best(100 * best.others, best.efficiency, best.cut)] if best.others else []
    axis = {"xaxis": {"type": "log"}}
    return Plot(ROC, "other edges kept, %", [line, *marks], axis)


def _purity(kept: Sequence[Kept], best: Kept) -> Plot:
    rows = [(100 * x.efficiency, 100 * x.purity) for x in kept if x.purity is not None]
    marks = [_best(100 * best.efficiency, best.purity, best.cut)]
    line = curve("all cuts", rows, 0)
    return Plot("Edge purity, %", "edge efficiency, %", [line, *marks])


def _edges(kept: Sequence[Kept], best: Kept) -> Plot:
    inner = [x for x in kept if 0 < x.cut < 1]
    efficiency = [(logit(x.cut), 100 * x.efficiency) for x in inner]
    purity = [(logit(x.cut), 100 * x.purity) for x in inner if x.purity is not None]
    lines = [curve("edge efficiency", efficiency, 0), curve("edge purity", purity, 1)]
    marks = [_best(logit(best.cut), best.efficiency, best.cut)]
    return Plot(EDGES_BY_CUT, "score cut", [*lines, *marks], _score_axis())


def _histogram(scores: EdgeScores) -> Plot:
    limits = [*map(logit, scores.limits)]
    ranges = [f"{a:.5g} to {b:.5g}" for a, b in zip(scores.limits, scores.limits[1:], strict=False)]
    bars = [
        go.Scatter(
            x=limits,
            y=[*getattr(scores, kind), getattr(scores, kind)[-1]],
            text=[*ranges, ranges[-1]],
            name=name,
            legendgroup=name,
            mode="lines",
            line={"color": colour(number), "shape": "hv", "width": 1.6},
            hovertemplate="%{text}: %{y} edges",
        )
        for number, (kind, name) in enumerate(KINDS.items())
        if any(getattr(scores, kind))
    ]
    layout = _score_axis()
    return Plot("Edges by score", "score", bars, {**layout, "yaxis": {"type": "log"}})


def logit(score: float) -> float:
    """Returns the logit of a score, that of the outermost ones as of the ends of the axis."""
    least = 1 / (1 + math.exp(10.25))
    inside = min(max(score, least), 1 - least)
    return math.log(inside / (1 - inside))


def _score_axis() -> dict[str, Any]:
    """Makes an axis of scores at their logits."""
    return {"xaxis": {"tickvals": [*map(logit, TICKS)], "ticktext": [f"{x:g}" for x in TICKS]}}


def _best(x: float, share: float | None, cut: float) -> Any:
    """Marks the best cut."""
    return go.Scatter(
        x=[x],
        y=[100 * (share or 0.0)],
        name=f"best cut: {cut:.4g}",
        legendgroup="best cut",
        mode="markers",
        marker={"symbol": "star", "size": 12, "color": colour(4)},
    )


def _track_mean(cut: CutRecord) -> float:
    return _harmonic_mean(cut.efficiency or 0.0, 1 - (cut.fake_rate or 0.0))


def _harmonic_mean(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other > 0 else 0.0
