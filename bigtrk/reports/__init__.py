"""The reports of folders of runs, pipelines and searches: `bigtrk report`."""

from bigtrk.records.pipeline_folder import read_pipeline
from bigtrk.records.run_folder import Run, read_run
from bigtrk.records.search import read_search
from bigtrk.reports.audit import audit_summary, show_audit
from bigtrk.reports.evaluation.page import write_evaluation_html
from bigtrk.reports.evaluation.score_tables import show_score
from bigtrk.reports.evaluation.tables import show_evaluation
from bigtrk.reports.page import write_html
from bigtrk.reports.pipeline.page import write_pipeline_evaluation_html, write_pipelines_html
from bigtrk.reports.pipeline.summary import (
    show_pipeline_evaluation,
    show_pipelines,
    summarise_pipelines,
)
from bigtrk.reports.search.page import write_search_html
from bigtrk.reports.search.summary import show_search, summarise_search
from bigtrk.reports.summary import show, summarise

__all__ = [
    "Run",
    "audit_summary",
    "read_pipeline",
    "read_run",
    "read_search",
    "show",
    "show_audit",
    "show_evaluation",
    "show_pipeline_evaluation",
    "show_pipelines",
    "show_score",
    "show_search",
    "summarise",
    "summarise_pipelines",
    "summarise_search",
    "write_evaluation_html",
    "write_html",
    "write_pipeline_evaluation_html",
    "write_pipelines_html",
    "write_search_html",
]
