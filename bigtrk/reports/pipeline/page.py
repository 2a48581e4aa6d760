"""The page of a pipeline's evaluations: losses against what particles are like."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from bigtrk.records.evaluation import LOG_AXES, Binned
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline_folder import PipelineFolder
from bigtrk.reports.elements.binned import BINNED_RULE, curve
from bigtrk.reports.elements.page_parts import header, legend, table_section, write_page
from bigtrk.reports.elements.plots import Line, line_plot, share_bars
from bigtrk.reports.pipeline.facts import evaluation_facts, pipeline_facts
from bigtrk.reports.pipeline.tables import (
    AXES,
    CATEGORIES,
    category_columns,
    evaluation_tables,
)

NAMES = (*CATEGORIES.values(),)
# Places in a bin where curves have their points, so that error bars stand side by side.
PLACES = dict(zip(CATEGORIES, (0.5, 0.35, 0.41, 0.47, 0.53, 0.59, 0.65), strict=True))


def write_pipeline_evaluation_html(record: PipelineEvaluationRecord, path: Path) -> None:
    """Writes the page of one evaluation to `path`, atomically."""
    _write(path, f"bigtrk evaluation: {record.data}", "", [record])


def write_pipelines_html(pipelines: Sequence[PipelineFolder], path: Path) -> None:
    """Writes the report of pipelines and of their evaluations to `path`, atomically."""
    names = ", ".join(pipeline.folder.resolve().name for pipeline in pipelines)
    headers = "".join(header(*pipeline_facts(pipeline)) for pipeline in pipelines)
    records = [record for pipeline in pipelines for record in pipeline.evaluations]
    _write(path, f"bigtrk report: {names}", headers, records)


def _write(
    path: Path, title: str, headers: str, records: Sequence[PipelineEvaluationRecord]
) -> None:
    sections = "".join(map(_section, records))
    write_page(path, title=title, headers=headers, legend="", plots="", tables=sections)


def _section(record: PipelineEvaluationRecord) -> str:
    """Draws the loss budget as a bar and against each quantity, and shows the tables."""
    plots = "".join(_plots(record))
    drawn = f'<p>{escape(BINNED_RULE)}</p><div class="plots">{plots}</div>' if plots else ""
    return (
        f"{header(*evaluation_facts(record))}<section>{legend(NAMES)}{_bar(record)}{drawn}</section>"
        + "".join(table_section(table) for table in evaluation_tables(record))
    )


def _bar(record: PipelineEvaluationRecord) -> str:
    """Draws the shares of all categories; "" where no particle is to be found."""
    counts = [record.losses.get(name, 0) for name in CATEGORIES]
    total = sum(counts)
    return share_bars([("particles", [n / total for n in counts])], NAMES) if total else ""


def _plots(record: PipelineEvaluationRecord) -> Iterator[str]:
    """Draws efficiency and losses against each quantity."""
    for axis, label in AXES.items():
        known, log = category_columns(record, axis), axis in LOG_AXES
        found = [_curve(name, binned, log) for name, binned in known if name == "found"]
        lost = [_curve(name, binned, log) for name, binned in known if name != "found"]
        yield line_plot("Track efficiency, %", label, found, whole=False, log=log)
        yield line_plot("Particles lost, %", label, lost, whole=False, log=log)


def _curve(name: str, binned: Binned, log: bool) -> Line:
    what, colour = CATEGORIES[name], [*CATEGORIES].index(name)
    return curve(what, binned, colour, log=log, place=PLACES[name])
