"""The report of runs as one HTML page that needs nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements.charts import (
    by_whole_numbers,
    chart,
    curve,
    drawn,
    guide,
    share_bars,
)
from bigtrk.reports.elements.first_screen import first_screen
from bigtrk.reports.elements.page_parts import header, table_section, write_page
from bigtrk.reports.evaluation.page import evaluation_sections
from bigtrk.reports.evaluation.tables import named_evaluations
from bigtrk.reports.facts import headers, sentence
from bigtrk.reports.headlines import run_headlines, run_verdicts
from bigtrk.reports.run_plots import run_plots
from bigtrk.reports.scaling import Scaling, compare
from bigtrk.reports.tables import TIME_SHARES, make_tables

MOST_SENTENCES = 3
ACTIVITIES = ("compute", "exchange", "reduction", "data")


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
    yield from map(drawn, run_plots(runs))
    if scaling.compares:
        yield _speedup(scaling)


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
