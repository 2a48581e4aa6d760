"""The page of a pipeline's evaluations: what each stage gains and loses, of which particles."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bigtrk.records.evaluation import LOG_AXES
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline_folder import PipelineFolder
from bigtrk.reports.elements.binned import BINNED_RULE, curve
from bigtrk.reports.elements.charts import chart, drawn, share_bars
from bigtrk.reports.elements.first_screen import first_screen
from bigtrk.reports.elements.page_parts import header, plots_section, table_section, write_page
from bigtrk.reports.evaluation.score_plots import EDGES_RULE, edge_plots
from bigtrk.reports.pipeline.facts import evaluation_facts, pipeline_facts
from bigtrk.reports.pipeline.headlines import pipeline_headlines, pipeline_limit, pipeline_sentence
from bigtrk.reports.pipeline.stage_plots import stage_plots
from bigtrk.reports.pipeline.tables import (
    AXES,
    CATEGORIES,
    LOSSES,
    category_columns,
    evaluation_tables,
)

NAMES = (*CATEGORIES.values(),)
# Places in a bin where curves have their points, so that error bars stand side by side.
PLACES = dict(zip(CATEGORIES, (0.5, 0.35, 0.41, 0.47, 0.53, 0.59, 0.65), strict=True))


def write_pipeline_evaluation_html(
    pipeline: PipelineFolder, record: PipelineEvaluationRecord, path: Path
) -> None:
    """Writes the page of one evaluation of a pipeline to `path`, atomically."""
    title = f"bigtrk evaluation: {pipeline.name} on {record.data}"
    _write(path, title, [pipeline], [(pipeline.name, record)])


def write_pipelines_html(pipelines: Sequence[PipelineFolder], path: Path) -> None:
    """Writes the report of pipelines and of their evaluations to `path`, atomically."""
    title = f"bigtrk report: {', '.join(pipeline.name for pipeline in pipelines)}"
    records = [(pipeline.name, each) for pipeline in pipelines for each in pipeline.evaluations]
    _write(path, title, pipelines, records)


def _write(
    path: Path,
    title: str,
    pipelines: Sequence[PipelineFolder],
    records: Sequence[tuple[str, PipelineEvaluationRecord]],
) -> None:
    named = [(f"{name} on {record.data}", record) for name, record in records]
    numbers = [(name, pipeline_headlines(record)) for name, record in named]
    limits = [(name, pipeline_limit(record)) for name, record in named]
    verdict = [f"{name}: {limit}" if len(limits) > 1 else limit for name, limit in limits]
    write_page(
        path,
        title=title,
        first=first_screen(" ".join(map(pipeline_sentence, pipelines)), numbers, verdict),
        plots="",
        tables="".join(_section(name, record) for name, record in named)
        + "".join(header(*pipeline_facts(pipeline)) for pipeline in pipelines),
    )


def _section(name: str, record: PipelineEvaluationRecord) -> str:
    """Draws stages and losses, these as a bar and against each quantity; then the tables."""
    tables = "".join(
        table_section(table, _bar(record) if table.title == LOSSES else "")
        for table in evaluation_tables(record)
    )
    return (
        plots_section(f"Stages of {name}", stage_plots(record))
        + plots_section(f"The classifier's scores, {name}", _scores(record), (EDGES_RULE,))
        + plots_section(f"Particles of {name}", _plots(record), (BINNED_RULE,))
        + header(*evaluation_facts(record))
        + tables
    )


def _scores(record: PipelineEvaluationRecord) -> Iterator[str]:
    if record.scores:
        yield from map(drawn, edge_plots(record.scores, None))


def _bar(record: PipelineEvaluationRecord) -> str:
    """Draws the shares of all categories; "" where no particle is to be found."""
    counts = [record.losses.get(name, 0) for name in CATEGORIES]
    total = sum(counts)
    return share_bars([("particles", [n / total for n in counts])], NAMES) if total else ""


def _plots(record: PipelineEvaluationRecord) -> Iterator[str]:
    """Draws efficiency and losses against each quantity."""
    for axis, label in AXES.items():
        log = axis in LOG_AXES
        known = dict(category_columns(record, axis))
        curves = {
            name: curve(what, known.get(name), number, log=log, place=PLACES[name])
            for number, (name, what) in enumerate(CATEGORIES.items())
        }
        found = curves.pop("found")
        scale = {"xaxis": {"type": "log" if log else "linear"}}
        yield chart("Track efficiency, %", label, [found], scale)
        yield chart("Particles lost, %", label, [*curves.values()], {**scale, "showlegend": True})
