"""`bigtrk report PIPELINE`: the summary for programs (JSON) and for people (terminal)."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.pipeline_folder import PipelineFolder
from bigtrk.reports.elements.layout import at_width, show_header, show_table
from bigtrk.reports.pipeline.facts import evaluation_facts, pipeline_facts
from bigtrk.reports.pipeline.tables import evaluation_tables


def summarise_pipelines(pipelines: Sequence[PipelineFolder]) -> dict[str, Any]:
    """Returns the records and evaluations of pipelines, JSON-able."""
    return {
        "pipelines": [
            {
                "folder": str(pipeline.folder),
                **pipeline.record.model_dump(mode="json"),
                "evaluations": [each.model_dump(mode="json") for each in pipeline.evaluations],
            }
            for pipeline in pipelines
        ]
    }


def show_pipelines(pipelines: Sequence[PipelineFolder], console: Console) -> None:
    """Prints headers and tables; elsewhere than on a terminal at a width of 100."""
    for pipeline in pipelines:
        show_header(*pipeline_facts(pipeline), at_width(console))
        for record in pipeline.evaluations:
            show_pipeline_evaluation(record, console)


def show_pipeline_evaluation(record: PipelineEvaluationRecord, console: Console) -> None:
    """Prints what was evaluated, and the tables."""
    show_header(*evaluation_facts(record), at_width(console))
    for table in evaluation_tables(record):
        show_table(table, at_width(console))
