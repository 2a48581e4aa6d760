"""The reports of runs, evaluations, pipelines, searches and events: `bigtrk report` and others.

Each is a document (`document.py`), which `show` prints and `write_page` writes as a page.
"""

from bigtrk.records.pipeline import read_pipeline
from bigtrk.records.run_folder import Run, read_run
from bigtrk.records.studies import read_search
from bigtrk.reports.evaluation import evaluation_report, score_report
from bigtrk.reports.page import write_page
from bigtrk.reports.pipeline import (
    pipeline_evaluation_report,
    pipelines_report,
    summarise_pipelines,
)
from bigtrk.reports.runs import runs_report, summarise
from bigtrk.reports.search import search_report, summarise_search
from bigtrk.reports.terminal import show

__all__ = [
    "Run",
    "evaluation_report",
    "pipeline_evaluation_report",
    "pipelines_report",
    "read_pipeline",
    "read_run",
    "read_search",
    "runs_report",
    "score_report",
    "search_report",
    "show",
    "summarise",
    "summarise_pipelines",
    "summarise_search",
    "write_page",
]
