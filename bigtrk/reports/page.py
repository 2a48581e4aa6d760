"""The report as one HTML page that needs nothing else: inline style, inline SVG, no script."""

from collections.abc import Sequence
from pathlib import Path

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements.page_parts import header, legend, table_section, write_page
from bigtrk.reports.elements.plots import Line, line_plot, share_bars
from bigtrk.reports.evaluation.page import evaluation_section
from bigtrk.reports.evaluation.tables import evaluations
from bigtrk.reports.facts import headers
from bigtrk.reports.norms import total
from bigtrk.reports.scaling import Scaling, compare
from bigtrk.reports.tables import TIME_SHARES, make_tables

ACTIVITIES = ("compute", "exchange", "reduction", "data")
NORMS = (("Norm of the gradient", "gradient"), ("Norm of the weights", "weight"))
METRICS = (
    ("Validation loss", "loss", 1.0),
    ("Efficiency, %", "efficiency", 100.0),
    ("Target purity, %", "target_purity", 100.0),
    ("Total purity, %", "total_purity", 100.0),
    ("Purity, %", "purity", 100.0),
    ("AUC, %", "auc", 100.0),
)


def write_html(runs: Sequence[Run], path: Path) -> None:
    """Writes the report of `runs` to `path`, atomically."""
    scaling = compare(runs)
    names = labels(runs)
    write_page(
        path,
        title=f"bigtrk report: {', '.join(names)}",
        headers="".join(header(title, facts) for title, facts in headers(runs)),
        legend=legend(names) if len(names) > 1 else "",
        plots="".join(_plots(runs, scaling)),
        tables="".join(
            table_section(table, _shares(scaling) if table.title == TIME_SHARES else "")
            for table in make_tables(runs, scaling)
        )
        + "".join(evaluation_section(name, record) for name, record in evaluations(runs)),
    )


def _plots(runs: Sequence[Run], scaling: Scaling) -> list[str]:
    names = labels(runs)
    losses = [
        Line(name, tuple((s.step, s.loss) for s in run.steps if s.loss is not None))
        for name, run in zip(names, runs, strict=True)
    ]
    plots = [line_plot("Training loss", "step", losses)]
    plots += [_norms(title, runs, kind) for title, kind in NORMS]
    plots += [_by_epoch(title, runs, name, scale) for title, name, scale in METRICS]
    if scaling.compares:
        plots.append(_speedup(scaling))
    return plots


def _norms(title: str, runs: Sequence[Run], kind: str) -> str:
    """Draws the norm of all parts of the model together, by step."""
    lines = []
    for name, run in zip(labels(runs), runs, strict=True):
        values = [(s.step, total(getattr(s.norms, kind))) for s in run.steps if s.norms]
        lines.append(Line(name, tuple((x, y) for x, y in values if y is not None)))
    return line_plot(title, "step", lines)


def _by_epoch(title: str, runs: Sequence[Run], metric: str, scale: float) -> str:
    lines = []
    for name, run in zip(labels(runs), runs, strict=True):
        values = [(e.number, getattr(e.validation, metric)) for e in run.epochs if e.validation]
        lines.append(Line(name, tuple((x, scale * y) for x, y in values if y is not None)))
    return line_plot(title, "epoch", lines)


def _speedup(scaling: Scaling) -> str:
    """Draws each run's speed-up as a point in the run's colour, and that of ideal scaling."""
    points = [
        Line(row.run, () if row.speedup is None else ((row.ranks, row.speedup),))
        for row in scaling.rows
    ]
    ranks = {row.run: row.ranks for row in scaling.rows}
    starts = {ranks[row.baseline] for row in scaling.rows if row.baseline}
    most = max(ranks.values())
    ideal = [Line("ideal", ((n, 1.0), (most, most / n)), guide=True) for n in sorted(starts)]
    return line_plot("Speed-up (dashed: ideal)", "ranks", [*points, *ideal])


def _shares(scaling: Scaling) -> str:
    bars = [
        (row.run, (part.compute, part.exchange, part.reduce, part.data))
        for row, timing in zip(scaling.rows, scaling.timings, strict=True)
        if (part := timing.shares)
    ]
    return shares_figure(bars)


def shares_figure(bars: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Draws stacked bars of (name, shares by `ACTIVITIES`) with their legend; "" without any."""
    return legend(ACTIVITIES) + share_bars(bars, ACTIVITIES) if bars else ""
