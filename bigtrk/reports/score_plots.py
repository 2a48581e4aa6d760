"""Plots of an evaluation against the score of edges: what a cut keeps, and which is the best."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from bigtrk.records.evaluation import CutRecord, EdgeScores, EvaluationRecord
from bigtrk.reports.document import Axis, Curve, Plot
from bigtrk.reports.figures import wilson

TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
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
BEST_COLOUR = 4


@dataclass(frozen=True)
class Kept:
    """The edges above a cut as shares: of the target, of all others, and the target's of target and
    false ones (None where no edge is kept).
    """

    cut: float
    efficiency: float
    others: float
    purity: float | None


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
    known = [
        (_harmonic_mean(cut.efficiency, 1 - cut.fake_rate), cut)
        for cut in scan
        if cut.efficiency and cut.fake_rate is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def score_plots(record: EvaluationRecord) -> Iterator[Plot]:
    """Makes plots of tracks against the cut, where cuts were tried, and of edges."""
    if record.tracks and (scan := record.tracks.scan):
        lines = []
        rates = {"track efficiency": "efficiency", "fake tracks": "fake_rate"}
        for number, (name, rate) in enumerate(rates.items()):
            rows = []
            for cut in scan:
                n = cut.n_particles if rate == "efficiency" else cut.n_tracks
                if (share := getattr(cut, rate)) is not None:
                    ends = wilson(share, n) if n and 0 <= share <= 1 else ()
                    rows.append((logit(cut.score_cut), *(100 * x for x in (share, *ends))))
            lines.append(Curve(name, rows, number))
        best = best_scan(scan)
        mark = _best(logit(best.score_cut), best.efficiency, best.score_cut) if best else []
        yield _by_score("Tracks against the score cut, %", "score cut", [*lines, *mark])
    if record.scores:
        yield from edge_plots(record.scores, record.edge_metrics.auc)


def edge_plots(scores: EdgeScores, auc: float | None) -> Iterator[Plot]:
    """Makes plots of ROC, purity and efficiency where there are edges of both kinds, and
    histograms. auc: the mean of events, where it is known.
    """
    if kept := kept_by_cut(scores):
        best = max(kept, key=lambda each: _harmonic_mean(each.efficiency, each.purity or 0.0))
        name = "all cuts" if auc is None else f"all cuts, AUC {100 * auc:.3f} %"
        roc = Curve(name, [(100 * x.others, 100 * x.efficiency) for x in kept if x.others])
        mark = _best(100 * best.others, best.efficiency, best.cut) if best.others else []
        title, axis = "ROC: edge efficiency, %", ("other edges kept, %",)
        yield Plot(title, axis, [roc, *mark], x_axis="log")
        pure = [x for x in kept if x.purity is not None]
        line = Curve("all cuts", [(100 * x.efficiency, 100 * (x.purity or 0)) for x in pure])
        mark = _best(100 * best.efficiency, best.purity, best.cut)
        yield Plot("Edge purity, %", ("edge efficiency, %",), [line, *mark])
        efficient = [(logit(x.cut), 100 * x.efficiency) for x in kept if 0 < x.cut < 1]
        points = [(logit(x.cut), 100 * (x.purity or 0)) for x in pure if 0 < x.cut < 1]
        lines = [Curve("edge efficiency", efficient, 0), Curve("edge purity", points, 1)]
        mark = _best(logit(best.cut), best.efficiency, best.cut)
        yield _by_score("Edges against the score cut, %", "score cut", [*lines, *mark])
    limits, bars = scores.limits, []
    ranges = [f"{low:.5g} to {high:.5g}" for low, high in pairwise(limits)]
    for number, (kind, name) in enumerate(KINDS.items()):
        counts: tuple[int, ...] = getattr(scores, kind)
        if any(counts):
            steps = [*zip(map(logit, limits), (*counts, counts[-1]), strict=True)]
            bars.append(Curve(name, steps, number, "steps", [*ranges, ranges[-1]]))
    yield _by_score("Edges by score", "score", bars, "log")


def _by_score(title: str, axis: str, curves: Sequence[Curve], y_axis: Axis = "linear") -> Plot:
    """Makes a plot against scores, at their logits."""
    ticks = {logit(score): f"{score:g}" for score in TICKS}
    return Plot(title, (axis,), curves, ticks=ticks, y_axis=y_axis)


def logit(score: float) -> float:
    """Returns the logit of a score, that of the outermost ones as of the ends of the axis."""
    least = 1 / (1 + math.exp(10.25))
    inside = min(max(score, least), 1 - least)
    return math.log(inside / (1 - inside))


def _best(x: float, share: float | None, cut: float) -> list[Curve]:
    return [Curve(f"best cut: {cut:.4g}", [(x, 100 * (share or 0.0))], BEST_COLOUR, "mark")]


def _harmonic_mean(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other > 0 else 0.0
