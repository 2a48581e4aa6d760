"""The reports of run folders: `bigtrk report`."""

from bigtrk.records.run_folder import Run, read_run
from bigtrk.reports.evaluation.page import write_evaluation_html
from bigtrk.reports.evaluation.score_tables import show_score
from bigtrk.reports.evaluation.tables import show_evaluation
from bigtrk.reports.page import write_html
from bigtrk.reports.summary import show, summarise

__all__ = [
    "Run",
    "read_run",
    "show",
    "show_evaluation",
    "show_score",
    "summarise",
    "write_evaluation_html",
    "write_html",
]
