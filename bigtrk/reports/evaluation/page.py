"""The page of an evaluation, and its sections in a run's report."""

import shlex
from html import escape
from pathlib import Path

from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.run_folder import Run
from bigtrk.reports.elements.charts import drawn
from bigtrk.reports.elements.first_screen import first_screen
from bigtrk.reports.elements.page_parts import header, plots_section, table_section, write_page
from bigtrk.reports.evaluation.bin_plots import KEY, bin_plots
from bigtrk.reports.evaluation.headlines import evaluation_headlines, evaluation_verdict
from bigtrk.reports.evaluation.score_plots import EDGES_RULE, TRACKS_RULE, best_scan, score_plots
from bigtrk.reports.evaluation.tables import evaluation_tables
from bigtrk.reports.facts import facts, sentence


def write_evaluation_html(record: EvaluationRecord, path: Path, run: Run | None = None) -> None:
    """Writes the page of one evaluation to `path`, atomically. run: whose model was evaluated."""
    name = _model_name(record, run)
    known = facts(run) if run else {}
    of_data = {
        "evaluated on": f"{record.events} events of {record.data}",
        "evaluated": f"{record.made:%Y-%m-%d %H:%M} {record.made.tzname()}",
    }
    lead = f"{sentence(run)} " if run else ""
    lead += f"Evaluated on {record.events} events of {record.data}, {record.made:%Y-%m-%d}."
    numbers = [(name, evaluation_headlines(record))]
    write_page(
        path,
        title=f"bigtrk evaluation: {name} on {record.data}",
        first=first_screen(lead, numbers, evaluation_verdict(record)),
        plots="",
        tables=evaluation_sections("", record, run)
        + "".join(table_section(table) for table in evaluation_tables([("", record)]))
        + header("What was evaluated", {**known, **of_data}),
    )


def _model_name(record: EvaluationRecord, run: Run | None) -> str:
    if run is None:
        return "the model"
    name = run.folder.resolve().name
    return f"{name}, {record.weights}" if record.weights else name


def evaluation_sections(name: str, record: EvaluationRecord, run: Run | None) -> str:
    """Makes the sections of plots of an evaluation; `name` goes into their titles. run: for the
    command that uses the best cut.
    """
    whose = f"Evaluation of {name}" if name else "Evaluation"
    notes = (TRACKS_RULE, EDGES_RULE) if record.tracks and record.tracks.scan else (EDGES_RULE,)
    by_score = plots_section(f"{whose} against the score", map(drawn, score_plots(record)), notes)
    return (
        by_score
        + (_best_cut(record, run) if by_score else "")
        + plots_section(f"{whose} in bins", map(drawn, bin_plots(record)), (KEY,))
    )


def _best_cut(record: EvaluationRecord, run: Run | None) -> str:
    """Says which cut makes the best tracks, and the command that uses it or that finds it."""
    model = shlex.quote(str(run.folder / (record.weights or ""))) if run else "RUN"
    tracks = record.tracks
    best = best_scan(tracks.scan) if tracks else None
    if tracks is None or best is None:
        told = "To see tracks by other cuts, and the best one:"
        command = f"bigtrk evaluate {model} {shlex.quote(record.data)} --tracks --scan-cuts"
    else:
        told = f"The best cut for tracks is {best.score_cut:g}. To use it:"
        command = (
            f"bigtrk infer {model} GRAPHS TRACKS --builder {shlex.quote(tracks.builder)} "
            f"--score-cut {best.score_cut:g}"
        )
    return f"<p>{escape(told)} <code>{escape(command)}</code></p>"
