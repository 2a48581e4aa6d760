"""The report of scaling series as one HTML page that needs nothing else."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import accumulate
from pathlib import Path

from bigtrk.records.metrics import EpochRecord
from bigtrk.reports.elements.estimates import Estimate
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.elements.page_parts import header, legend, table_section, write_page
from bigtrk.reports.elements.plots import Line, line_plot
from bigtrk.reports.page import METRICS, shares_figure
from bigtrk.reports.tables import TIME_SHARES
from bigtrk.studies.scaling.points import Point
from bigtrk.studies.scaling.series import Series

Blocks = Sequence[tuple[str, dict[str, str]]]
CURVES = (
    ("Speed-up", "speedup", 1),
    ("Parallel efficiency, %", "efficiency", 100),
    ("Epoch, s", "epoch_seconds", 1),
)
KEY = (
    "Bars of speed-up, efficiency and seconds: one standard error over repeats; coloured dashes: "
    "predicted; grey: ideal. Bars of validation metrics: binomial intervals."
)


def write_series_html(
    path: Path,
    every: Sequence[Series],
    points: Sequence[Point],
    headers: Blocks,
    tables: Sequence[Table],
) -> None:
    """Writes the page of all series, their points and tables to `path`, atomically."""
    names = [series.name for series in every]
    write_page(
        path,
        title=f"bigtrk scaling: {', '.join(names)}",
        headers="".join(header(title, facts) for title, facts in headers),
        legend=legend(names) + f"<p>{KEY}</p>",
        plots="".join([*_curves(names, points), *_by_ranks(names, points)]),
        tables="".join(_over_time(series) for series in every)
        + "".join(
            table_section(x, _shares(points) if x.title == TIME_SHARES else "") for x in tables
        ),
    )


def _curves(names: Sequence[str], points: Sequence[Point]) -> Iterator[str]:
    """Draws speed-up, efficiency and seconds by ranks: measured, predicted and ideal."""
    ranks = [point.ranks for point in points]
    first, last = min(ranks), max(ranks)
    ideal = {
        "speedup": Line("ideal", ((first, 1.0), (last, last / first)), guide=True),
        "efficiency": Line("ideal", ((first, 100.0), (last, 100.0)), guide=True),
    }
    for title, what, scale in CURVES:
        lines = []
        for colour, name in enumerate(names):
            own = [point for point in points if point.series == name]
            found = [(p.ranks, getattr(p, what).times(scale)) for p in own]
            lines.append(_with_bars(name, found, colour))
            planned = [(p.ranks, scale * getattr(x, what)) for p in own if (x := p.predicted)]
            lines.append(Line(f"{name}, predicted", tuple(planned), dashed=True, colour=colour))
        if what in ideal:
            lines.append(ideal[what])
        yield line_plot(title, "ranks", lines)


def _with_bars(name: str, found: Sequence[tuple[int, Estimate]], colour: int) -> Line:
    bars = [(n, x.mean - x.error, x.mean + x.error) for n, x in found if x.error is not None]
    return Line(name, tuple((n, x.mean) for n, x in found), errors=tuple(bars), colour=colour)


def _by_ranks(names: Sequence[str], points: Sequence[Point]) -> Iterator[str]:
    """Draws each validation metric by ranks, with its binomial interval where it has one."""
    for title, metric, scale in METRICS:
        lines = []
        for colour, name in enumerate(names):
            own = [point for point in points if point.series == name]
            means = [(p.ranks, scale * x.mean) for p in own if (x := p.metrics[metric])]
            ends = [(p.ranks, *p.intervals[metric]) for p in own if metric in p.intervals]
            bars = [(n, scale * low, scale * high) for n, low, high in ends]
            lines.append(Line(name, tuple(means), errors=tuple(bars), colour=colour))
        yield line_plot(title, "ranks", lines)


def _over_time(series: Series) -> str:
    """Draws loss and metrics by training time, a line per run in its number of ranks' colour."""
    ranks = [f"{n} rank{'s' if n > 1 else ''}" for n in series.runs]
    plots = [_time_plot("Training loss", series, lambda epoch: epoch.train_loss)]
    plots += [
        _time_plot(title, series, partial(_metric, metric, scale))
        for title, metric, scale in METRICS
    ]
    body = f'<div class="plots">{"".join(plots)}</div>'
    return f"<section><h2>{escape(series.name)} over time</h2>{legend(ranks)}{body}</section>"


def _metric(metric: str, scale: float, epoch: EpochRecord) -> float | None:
    value = getattr(epoch.validation, metric, None)
    return None if value is None else scale * value


def _time_plot(title: str, series: Series, value: Callable[[EpochRecord], float | None]) -> str:
    lines = []
    for colour, runs in enumerate(series.runs.values()):
        for run in runs:
            times = accumulate(epoch.seconds or 0.0 for epoch in run.epochs)
            pairs = zip(times, map(value, run.epochs), strict=True)
            known = tuple((t, y) for t, y in pairs if y is not None)
            lines.append(Line(run.folder.name, known, colour=colour))
    return line_plot(title, "seconds of training", lines, whole=False)


def _shares(points: Sequence[Point]) -> str:
    bars = [
        (f"{point.series}, {point.ranks}", (x.compute, x.exchange, x.reduce, x.data))
        for point in points
        if (x := point.shares)
    ]
    return shares_figure(bars)
