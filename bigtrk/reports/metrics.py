"""Edge metrics, particles lost and other ratios, as cells of tables, numbers and plots."""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise
from statistics import harmonic_mean

from bigtrk.records.evaluation import LOG_AXES, Binned, CutRecord, EdgeScores, EvaluationRecord
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports import figures
from bigtrk.reports.document import Axis, Curve, Number, Plot
from bigtrk.reports.figures import wilson

PAPER = (
    "Efficiency: kept among target edges. Of the kept edges, target purity: target edges; total "
    "purity: true edges; purity: target edges, without the other true ones. Means over events."
)
# Title of the plot, column of tables and scale of each metric.
METRICS = {
    "efficiency": ("Efficiency, %", "efficiency %", 100.0),
    "target_purity": ("Target purity, %", "target purity %", 100.0),
    "total_purity": ("Total purity, %", "total purity %", 100.0),
    "purity": ("Purity, %", "purity %", 100.0),
    "auc": ("AUC, %", "AUC %", 100.0),
    "loss": ("Validation loss", "val. loss", 1.0),
}
COLUMNS = {column: name for name, (_, column, _) in METRICS.items()}
AXES = {
    "pt": "pT, GeV",
    "eta": "eta",
    "distance": "distance to the nearest particle",
    "vertex": "vertex radius, mm",
    "hits": "hits",
}
EDGES_RULE = (
    "All events together. The best cut has the highest harmonic mean of efficiency and purity."
)
TRACKS_RULE = (
    "Tracks: ATLAS matching, strict mode, with Wilson's intervals. The best of the cuts tried has "
    "the highest harmonic mean of track efficiency and 1 - fakes: choose it on other events than "
    "those of your figures."
)
NO_PARTICLES = (
    "No particle has enough hits and a known pT that high; --pt-min 0 takes those of unknown "
    "momentum, too."
)
SCORE_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
KINDS = {"target": "target edges", "other": "other true edges", "false": "false edges"}
BEST_COLOUR = 4
FOUND = "found"  # the category of particles that are not lost


def metric_cells(metrics: MeanEdgeMetrics | None) -> dict[str, str]:
    """Returns the cells of the metrics by column."""
    return {
        column: (figures.loss if name == "loss" else figures.percent)(getattr(metrics, name, None))
        for name, (_, column, _) in METRICS.items()
    }


def _purity_edges(metrics: MeanEdgeMetrics) -> int | None:
    """Returns the denominator of `purity`: predicted edges that are target or false edges."""
    predicted, true, found = metrics.n_predicted, metrics.n_true_predicted, metrics.n_found
    if predicted is None or true is None or found is None:
        return None
    return max(predicted - true + found, 0)


# The denominator of each ratio, for its binomial interval.
DENOMINATORS: dict[str, Callable[[MeanEdgeMetrics], int | None]] = {
    "efficiency": lambda metrics: metrics.n_target,
    "target_purity": lambda metrics: metrics.n_predicted,
    "total_purity": lambda metrics: metrics.n_predicted,
    "purity": _purity_edges,
}


def with_interval(
    metrics: MeanEdgeMetrics | None, name: str, scale: float = 1.0
) -> tuple[float, ...]:
    """Returns a metric and its binomial interval's ends; () or only the metric if unknown."""
    value = getattr(metrics, name, None)
    if value is None:
        return ()
    count = DENOMINATORS.get(name)
    whole = count(metrics) if count and metrics else None
    return tuple(scale * x for x in (value, *(wilson(value, whole) if whole else ())))


def share_number(label: str, share: float | None, whole: int | None) -> list[Number]:
    """Returns the number of a share of `whole`, with binomial interval, in a list; [] if None."""
    if share is None:
        return []
    value = f"{figures.percent(share, 1)} %"
    if not whole:
        return [Number(label, value)]
    low, high = wilson(share, whole)
    basis = f"{100 * low:.1f} to {100 * high:.1f}; of {figures.count(whole)}"
    return [Number(label, value, basis)]


def edge_numbers(metrics: MeanEdgeMetrics) -> list[Number]:
    """Lists the known ones of efficiency, purity and AUC of edges."""
    shares = []
    for name in ("efficiency", "purity"):
        whole = DENOMINATORS[name](metrics)
        shares += share_number(f"edge {name}", getattr(metrics, name), whole)
    return [*shares, *share_number("AUC of edges", metrics.auc, None)]


def share_cell(part: int, whole: int) -> str:
    """Formats part/whole in percent, with half its interval; a dash if `whole` is 0."""
    if not whole:
        return figures.DASH
    low, high = wilson(part / whole, whole)
    return f"{100 * part / whole:.1f} ±{50 * (high - low):.1f}"


def bin_plot(
    title: str,
    axis: str,
    ratios: Mapping[str, Binned | None],
    colours: Sequence[int],
    dashed: Container[str] = (),
) -> Plot:
    """Makes a plot of named ratios against `axis`, one of AXES; names in `dashed` get dashes."""
    middle = (len(ratios) - 1) / 2
    curves = [
        bin_curve(name, binned, axis, colour, 0.5 + 0.06 * (number - middle), name in dashed)
        for number, ((name, binned), colour) in enumerate(zip(ratios.items(), cycle(colours)))
    ]
    scale: Axis = "log" if axis in LOG_AXES else "linear"
    return Plot(title, (AXES[axis],), curves, scale, legend=len(ratios) > 1)


def bin_curve(
    name: str,
    binned: Binned | None,
    axis: str,
    colour: int,
    place: float = 0.5,
    dashed: bool = False,
) -> Curve:
    """Makes a curve of percentages, with a point in each filled bin, at `place` (0 to 1) in it."""
    points, texts = [], []
    limits = pairwise(binned.edges) if binned else ()
    counts = zip(binned.part, binned.whole, strict=True) if binned else ()
    for (low, high), (part, whole) in zip(limits, counts, strict=True):
        if whole:
            is_log = axis in LOG_AXES and low > 0
            x = low * (high / low) ** place if is_log else low + (high - low) * place
            ends = (100 * end for end in wilson(part / whole, whole))
            points.append((x, 100 * part / whole, *ends))
            texts.append(f"{low:g} to {high:g}: {part} of {whole}")
    return Curve(name, points, colour, "dashes" if dashed else "line", texts=texts)


def lost_plot(axis: str, names: Mapping[str, str], bins: Mapping[str, Binned]) -> Plot:
    """Plots lost particles by category against `axis`, one of AXES. names: titles by category."""
    lost = {name: what for name, what in names.items() if name != FOUND}
    ratios = {what: bins.get(f"{name}_by_{axis}") for name, what in lost.items()}
    return bin_plot("Particles lost, %", axis, ratios, range(2, 8))


def loss_rows(losses: Mapping[str, int], names: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields a table row for each category of losses that was counted."""
    total = sum(losses.values())
    for what, n in ((what, losses[name]) for name, what in names.items() if name in losses):
        share = share_cell(n, total)
        yield {"particles to be found": what, "particles": figures.count(n), "%": share}


def loss_limit(losses: Mapping[str, int], names: Mapping[str, str]) -> str:
    """Writes which stage loses most particles; a category's title begins with its stage."""
    total, lost = sum(losses.values()), Counter[str]()
    if not total:
        return "What limits the tracks is not known: there are no particles to be found."
    for name, what in names.items():
        if name != FOUND:
            lost[what.partition(":")[0]] += losses.get(name, 0)
    [(first, n)] = lost.most_common(1)
    if not n:
        return f"Nothing limits the tracks: of {figures.count_of(total, 'particle')} none is lost."
    shares = ", ".join(f"the {what} {100 * n / total:.1f}" for what, n in lost.items())
    return f"The {first} limits the tracks. Losses in 100 particles: {shares}."


@dataclass(frozen=True)
class Kept:
    """Fractions of edges above a cut: target edges, others; purity is None if no edge is kept."""

    cut: float
    efficiency: float
    others: float
    purity: float | None


def kept_by_cut(scores: EdgeScores) -> list[Kept]:
    """Returns, for a cut at each limit, the fractions kept; [] unless there are both kinds."""
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
    """Returns the cut with the best harmonic mean of efficiency and 1 - fake rate; None if none."""
    known = [
        (harmonic_mean([max(cut.efficiency, 0.0), max(1 - cut.fake_rate, 0.0)]), cut)
        for cut in scan
        if cut.efficiency and cut.fake_rate is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def score_plots(record: EvaluationRecord) -> Iterator[Plot]:
    """Yields plots of tracks against the score cut, if cuts were tried, and of edges."""
    if record.tracks and (scan := record.tracks.scan):
        lines = []
        rates = {"track efficiency": "efficiency", "fake tracks": "fake_rate"}
        for number, (name, rate) in enumerate(rates.items()):
            rows = []
            for cut in scan:
                n = cut.n_particles if rate == "efficiency" else cut.n_tracks
                if (share := getattr(cut, rate)) is not None:
                    ends = wilson(share, n) if n else ()
                    rows.append((logit(cut.score_cut), *(100 * x for x in (share, *ends))))
            lines.append(Curve(name, rows, number))
        best = best_scan(scan)
        mark = _best(logit(best.score_cut), best.efficiency, best.score_cut) if best else []
        yield _by_score("Tracks against the score cut, %", "score cut", [*lines, *mark])
    if record.scores:
        yield from edge_plots(record.scores, record.edge_metrics.auc)


def edge_plots(scores: EdgeScores, auc: float | None) -> Iterator[Plot]:
    """Yields ROC, purity, and efficiency by cut, if both kinds of edges exist, and histograms."""
    if kept := kept_by_cut(scores):
        best = max(kept, key=lambda each: harmonic_mean([each.efficiency, each.purity or 0.0]))
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
    ticks = {logit(score): f"{score:g}" for score in SCORE_TICKS}
    return Plot(title, (axis,), curves, ticks=ticks, y_axis=y_axis)


def logit(score: float) -> float:
    """Returns the logit of a score, limited to +-10.25, the ends of the axis."""
    least = 1 / (1 + math.exp(10.25))
    inside = min(max(score, least), 1 - least)
    return math.log(inside / (1 - inside))


def _best(x: float, share: float | None, cut: float) -> list[Curve]:
    return [Curve(f"best cut: {cut:.4g}", [(x, 100 * (share or 0.0))], BEST_COLOUR, "mark")]
