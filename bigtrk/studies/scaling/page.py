"""The report of scaling series as one HTML page that needs nothing else."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from bigtrk.records.metrics import EpochRecord
from bigtrk.reports.elements.charts import by_whole_numbers, chart, curve, guide, share_bars
from bigtrk.reports.elements.estimates import Estimate
from bigtrk.reports.elements.first_screen import Headline, first_screen
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.elements.metric_columns import with_interval
from bigtrk.reports.elements.page_parts import header, plots_section, table_section, write_page
from bigtrk.reports.headlines import time_limit
from bigtrk.reports.page import ACTIVITIES
from bigtrk.reports.run_plots import METRICS
from bigtrk.reports.scaling import time_run
from bigtrk.reports.tables import TIME_SHARES
from bigtrk.studies.scaling.points import Point
from bigtrk.studies.scaling.series import Series

Blocks = Sequence[tuple[str, dict[str, str]]]
CURVES = (
    ("Speed-up", "speedup", 1),
    ("Parallel efficiency, %", "efficiency", 100),
    ("Epoch, s", "epoch_seconds", 1),
)
TIME = "seconds of training"
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
        first=first_screen(_lead(headers), _headlines(points), _verdicts(names, points)),
        plots=[*_curves(names, points), *_by_ranks(names, points)],
        tables=f"<p>{KEY}</p>"
        + "".join(_over_time(series) for series in every)
        + "".join(
            table_section(x, _shares(points) if x.title == TIME_SHARES else "") for x in tables
        )
        + "".join(header(title, facts) for title, facts in headers),
    )


def _lead(headers: Blocks) -> str:
    """Says what was trained on what."""
    told = [
        f"{title}: {facts['model']}; {facts['scaling']}; {facts['engine']}, {facts['machine']}."
        for title, facts in headers
    ]
    return " ".join(told)


def _headlines(points: Sequence[Point]) -> list[tuple[str, list[Headline]]]:
    """Lists the numbers of the most ranks of each series."""
    last = {point.series: point for point in points}
    return [
        (
            f"{name}, {point.ranks} ranks",
            [
                _with_error("speed-up", point.speedup, 1.0, 2),
                _with_error("parallel efficiency, %", point.efficiency, 100.0, 1),
                _with_error("s per epoch", point.epoch_seconds, 1.0, 2),
            ],
        )
        for name, point in last.items()
    ]


def _with_error(label: str, value: Estimate, scale: float, decimals: int) -> Headline:
    shown = value.times(scale)
    error = "" if shown.error is None else f"±{shown.error:,.{decimals}f}; {shown.n} repeats"
    return Headline(label, f"{shown.mean:,.{decimals}f}", error)


def _verdicts(names: Sequence[str], points: Sequence[Point]) -> list[str]:
    """Says of each series what limits it on the most ranks."""
    last = {point.series: point for point in points}
    return [
        f"{name}, {last[name].ranks} ranks: {limit}"
        for name in names
        for limit in time_limit(time_run(last[name].runs[0]))
    ]


def _curves(names: Sequence[str], points: Sequence[Point]) -> Iterator[str]:
    """Draws speed-up, efficiency and seconds by ranks: measured, predicted and ideal."""
    ranks = [point.ranks for point in points]
    first, last = min(ranks), max(ranks)
    ideal = {
        "speedup": guide("ideal", [(first, 1.0), (last, last / first)]),
        "efficiency": guide("ideal", [(first, 100.0), (last, 100.0)]),
    }
    for title, what, scale in CURVES:
        lines = []
        for number, name in enumerate(names):
            own = [point for point in points if point.series == name]
            found = [(p.ranks, getattr(p, what).times(scale)) for p in own]
            lines.append(curve(name, [_row(n, x) for n, x in found], number))
            planned = [(p.ranks, scale * getattr(x, what)) for p in own if (x := p.predicted)]
            lines.append(curve(f"{name}, predicted", planned, number, dash="dash"))
        if what in ideal:
            lines.append(ideal[what])
        yield chart(title, "ranks", lines, by_whole_numbers(lines))


def _row(ranks: int, value: Estimate) -> tuple[float, ...]:
    ends = () if value.error is None else (value.mean - value.error, value.mean + value.error)
    return (ranks, value.mean, *ends)


def _by_ranks(names: Sequence[str], points: Sequence[Point]) -> Iterator[str]:
    """Draws each validation metric by ranks, with its binomial interval where it has one."""
    for title, metric, scale in METRICS:
        lines = []
        for number, name in enumerate(names):
            rows = [
                (p.ranks, *(scale * y for y in (x.mean, *p.intervals.get(metric, ()))))
                for p in points
                if p.series == name and (x := p.metrics[metric])
            ]
            lines.append(curve(name, rows, number))
        yield chart(title, "ranks", lines, by_whole_numbers(lines))


def _over_time(series: Series) -> str:
    """Draws loss and metrics by training time, runs in the colour of their number of ranks."""
    plots = [chart("Training loss", TIME, _losses(series))]
    plots += [chart(title, TIME, _metrics(series, what, scale)) for title, what, scale in METRICS]
    return plots_section(f"{series.name} over time", plots)


def _losses(series: Series) -> list[Any]:
    return [
        curve(
            name,
            [(at, epoch.train_loss) for at, epoch in epochs if epoch.train_loss is not None],
            number,
        )
        for number, name, epochs in _timed(series)
    ]


def _metrics(series: Series, metric: str, scale: float) -> list[Any]:
    return [
        curve(
            name,
            [
                (at, *(scale * y for y in ends))
                for at, epoch in epochs
                if (ends := with_interval(epoch.validation, metric))
            ],
            number,
        )
        for number, name, epochs in _timed(series)
    ]


def _timed(series: Series) -> Iterator[tuple[int, str, list[tuple[float, EpochRecord]]]]:
    """Yields each run's epochs with the seconds of training at their ends, its name, and the number
    of its colour.
    """
    for number, (ranks, runs) in enumerate(series.runs.items()):
        for run in runs:
            ends = accumulate(epoch.seconds or 0.0 for epoch in run.epochs)
            timed = [*zip(ends, run.epochs, strict=True)]
            yield number, f"{run.folder.name}, {ranks} rank{'s' if ranks > 1 else ''}", timed


def _shares(points: Sequence[Point]) -> str:
    bars = [
        (f"{point.series}, {point.ranks}", (x.compute, x.exchange, x.reduce, x.data))
        for point in points
        if (x := point.shares)
    ]
    return share_bars(bars, ACTIVITIES)
