"""The report of runs as one HTML page that needs nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements.charts import by_whole_numbers, chart, curve, guide, share_bars
from bigtrk.reports.elements.first_screen import first_screen
from bigtrk.reports.elements.metric_columns import with_interval
from bigtrk.reports.elements.page_parts import header, table_section, write_page
from bigtrk.reports.embedding import embedding_plot
from bigtrk.reports.evaluation.page import evaluation_sections
from bigtrk.reports.evaluation.tables import named_evaluations
from bigtrk.reports.facts import headers, sentence
from bigtrk.reports.headlines import run_headlines, run_verdicts
from bigtrk.reports.norms import total
from bigtrk.reports.scaling import Scaling, compare
from bigtrk.reports.tables import TIME_SHARES, make_tables

MOST_SENTENCES = 3
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
    verdicts = run_verdicts(runs, scaling)
    write_page(
        path,
        title=f"bigtrk report: {_named(runs)}",
        first=first_screen(_lead(runs), run_headlines(runs, scaling), verdicts),
        plots=_plots(runs, scaling),
        tables="".join(
            evaluation_sections(name, record, run) for name, record, run in named_evaluations(runs)
        )
        + "".join(
            table_section(table, _shares(scaling) if table.title == TIME_SHARES else "")
            for table in make_tables(runs, scaling)
        )
        + "".join(header(title, facts) for title, facts in headers(runs)),
    )


def _named(runs: Sequence[Run]) -> str:
    return ", ".join(labels(runs)) if len(runs) <= MOST_SENTENCES else f"{len(runs)} runs"


def _lead(runs: Sequence[Run]) -> str:
    if len(runs) <= MOST_SENTENCES:
        return " ".join(map(sentence, runs))
    return f"{len(runs)} runs side by side; where they differ is said below the tables."


def _plots(runs: Sequence[Run], scaling: Scaling) -> Iterator[str]:
    names = labels(runs)
    yield chart(
        "Training loss",
        "step",
        [
            curve(name, [(s.step, s.loss) for s in run.steps if s.loss is not None], number)
            for number, (name, run) in enumerate(zip(names, runs, strict=True))
        ],
    )
    for title, kind in NORMS:
        yield chart(title, "step", _norms(runs, kind))
    for title, metric, scale in METRICS:
        lines = _by_epoch(runs, metric, scale)
        yield chart(title, "epoch", lines, by_whole_numbers(lines))
    yield embedding_plot(runs)
    if scaling.compares:
        yield _speedup(scaling)


def _norms(runs: Sequence[Run], kind: str) -> list[Any]:
    """Draws the norm of all parts of the model together, by step."""
    lines = []
    for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        values = [(s.step, total(getattr(s.norms, kind))) for s in run.steps if s.norms]
        lines.append(curve(name, [(x, y) for x, y in values if y is not None], number))
    return lines


def _by_epoch(runs: Sequence[Run], metric: str, scale: float) -> list[Any]:
    """Draws a metric of validation, with its binomial interval where it has one."""
    lines = []
    for number, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        rows = [
            (epoch.number, *(scale * end for end in ends))
            for epoch in run.epochs
            if (ends := with_interval(epoch.validation, metric))
        ]
        lines.append(curve(name, rows, number))
    return lines


def _speedup(scaling: Scaling) -> str:
    """Draws each run's speed-up as a point in the run's colour, and that of ideal scaling."""
    points = [
        curve(row.run, [] if row.speedup is None else [(row.ranks, row.speedup)], number)
        for number, row in enumerate(scaling.rows)
    ]
    ranks = {row.run: row.ranks for row in scaling.rows}
    starts = {ranks[row.baseline] for row in scaling.rows if row.baseline}
    most = max(ranks.values())
    ideal = [guide("ideal", [(n, 1.0), (most, most / n)]) for n in sorted(starts)]
    lines = [*points, *ideal]
    return chart("Speed-up (dashed: ideal)", "ranks", lines, by_whole_numbers(lines))


def _shares(scaling: Scaling) -> str:
    bars = [
        (row.run, (part.compute, part.exchange, part.reduce, part.data))
        for row, timing in zip(scaling.rows, scaling.timings, strict=True)
        if (part := timing.shares)
    ]
    return share_bars(bars, ACTIVITIES)
