"""Run folders read and shown: `bigtrk report`."""

from bigtrk.reports.page import write_html
from bigtrk.reports.run_folder import Run, read_run
from bigtrk.reports.summary import show, summarise
from bigtrk.reports.tables import show_evaluation

__all__ = ["Run", "read_run", "show", "show_evaluation", "summarise", "write_html"]
