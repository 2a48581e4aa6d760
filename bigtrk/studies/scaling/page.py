"""The report of scaling series as one HTML page that needs nothing else."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from bigtrk.records.metrics import EpochRecord
from bigtrk.reports.document import Curve, Document, Facts, Number, Plot, Plots, Table
from bigtrk.reports.figures import Estimate
from bigtrk.reports.metrics import METRICS, with_interval
from bigtrk.reports.scaling import time_limit, time_run
from bigtrk.studies.scaling.points import Point
from bigtrk.studies.scaling.series import Series

CURVES = (
    ("Speed-up", "speedup", 1),
    ("Parallel efficiency, %", "efficiency", 100),
    ("Epoch, s", "epoch_seconds", 1),
)
TIME = ("seconds of training",)
KEY = (
    "Bars of speed-up, efficiency and seconds: one standard error over repeats; coloured dashes: "
    "predicted; grey: ideal. Bars of validation metrics: binomial intervals."
)


def series_report(
    every: Sequence[Series],
    points: Sequence[Point],
    headers: Sequence[Facts],
    tables: Sequence[Table],
) -> Document:
    """Makes the report of all series, of their points and tables."""
    names = [series.name for series in every]
    curves = [*_curves(names, points), *_by_ranks(names, points)]
    return Document(
        title=f"bigtrk scaling: {', '.join(names)}",
        lead=_lead(headers),
        numbers=_numbers(points),
        verdict=_verdicts(names, points),
        parts=[Plots("Scaling", curves, (KEY,)), *map(_over_time, every), *tables, *headers],
    )


def _lead(headers: Sequence[Facts]) -> str:
    """Says what was trained on what."""
    told = [
        f"{x.title}: {x.facts['model']}; {x.facts['scaling']}; {x.facts['engine']}, "
        f"{x.facts['machine']}."
        for x in headers
    ]
    return " ".join(told)


def _numbers(points: Sequence[Point]) -> list[tuple[str, list[Number]]]:
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


def _with_error(label: str, value: Estimate, scale: float, decimals: int) -> Number:
    shown = value.times(scale)
    error = "" if shown.error is None else f"±{shown.error:,.{decimals}f}; {shown.n} repeats"
    return Number(label, f"{shown.mean:,.{decimals}f}", error)


def _verdicts(names: Sequence[str], points: Sequence[Point]) -> list[str]:
    """Says of each series what limits it on the most ranks."""
    last = {point.series: point for point in points}
    return [
        f"{name}, {last[name].ranks} ranks: {limit}"
        for name in names
        for limit in time_limit(time_run(last[name].runs[0]))
    ]


def _curves(names: Sequence[str], points: Sequence[Point]) -> Iterator[Plot]:
    """Draws speed-up, efficiency and seconds by ranks: measured, predicted and ideal."""
    ranks = [point.ranks for point in points]
    first, last = min(ranks), max(ranks)
    ideal = {
        "speedup": Curve("ideal", [(first, 1.0), (last, last / first)], style="guide"),
        "efficiency": Curve("ideal", [(first, 100.0), (last, 100.0)], style="guide"),
    }
    for title, what, scale in CURVES:
        lines = []
        for number, name in enumerate(names):
            own = [point for point in points if point.series == name]
            found = [(p.ranks, getattr(p, what).times(scale)) for p in own]
            lines.append(Curve(name, [_row(n, x) for n, x in found], number))
            planned = [(p.ranks, scale * getattr(x, what)) for p in own if (x := p.predicted)]
            lines.append(Curve(f"{name}, predicted", planned, number, "dashes"))
        if what in ideal:
            lines.append(ideal[what])
        yield Plot(title, ("ranks",), lines, whole=True)


def _row(ranks: int, value: Estimate) -> tuple[float, ...]:
    ends = () if value.error is None else (value.mean - value.error, value.mean + value.error)
    return (ranks, value.mean, *ends)


def _by_ranks(names: Sequence[str], points: Sequence[Point]) -> Iterator[Plot]:
    """Draws each validation metric by ranks, with its binomial interval where it has one."""
    for title, metric, scale in METRICS:
        lines = []
        for number, name in enumerate(names):
            rows = [
                (p.ranks, *(scale * y for y in (x.mean, *p.intervals.get(metric, ()))))
                for p in points
                if p.series == name and (x := p.metrics[metric])
            ]
            lines.append(Curve(name, rows, number))
        yield Plot(title, ("ranks",), lines, whole=True)


def _over_time(series: Series) -> Plots:
    """Draws loss and metrics by training time, runs in the colour of their number of ranks."""
    plots = [Plot("Training loss", TIME, _losses(series))]
    plots += [Plot(title, TIME, _metrics(series, what, scale)) for title, what, scale in METRICS]
    return Plots(f"{series.name} over time", plots)


def _losses(series: Series) -> list[Curve]:
    return [
        Curve(
            name,
            [(at, epoch.train_loss) for at, epoch in epochs if epoch.train_loss is not None],
            number,
        )
        for number, name, epochs in _timed(series)
    ]


def _metrics(series: Series, metric: str, scale: float) -> list[Curve]:
    return [
        Curve(
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
