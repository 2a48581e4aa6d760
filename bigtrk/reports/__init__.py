"""The reports of folders of runs and pipelines: `bigtrk report`."""

from bigtrk.records.pipeline_folder import read_pipeline
from bigtrk.records.run_folder import Run, read_run
from bigtrk.reports.audit import audit_summary, show_audit
from bigtrk.reports.evaluation.page import write_evaluation_html
from bigtrk.reports.evaluation.score_tables import show_score
from bigtrk.reports.evaluation.tables import show_evaluation
from bigtrk.reports.note.write import write_pdf
from bigtrk.reports.page import write_html
from bigtrk.reports.pipeline.page import write_pipeline_evaluation_html, write_pipelines_html
from bigtrk.reports.pipeline.summary import (
    show_pipeline_evaluation,
    show_pipelines,
    summarise_pipelines,
)
from bigtrk.reports.summary import show, summarise

__all__ = [
    "Run",
    "audit_summary",
    "read_pipeline",
    "read_run",
    "show",
    "show_audit",
    "show_evaluation",
    "show_pipeline_evaluation",
    "show_pipelines",
    "show_score",
    "summarise",
    "summarise_pipelines",
    "write_evaluation_html",
    "write_html",
    "write_pdf",
    "write_pipeline_evaluation_html",
    "write_pipelines_html",
]
