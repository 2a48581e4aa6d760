"""Readers of what reports and watches show of runs, series, pipelines and searches."""

import io
import json
from functools import partial
from pathlib import Path

from rich.console import Console

from bigtrk.console import Screen
from bigtrk.cost.machines import CPU
from bigtrk.disk.folder_lock import LOCK, Owner
from bigtrk.planning.scaling import as_measured
from bigtrk.records.live import RunFollower
from bigtrk.records.pipeline import PIPELINE, read_pipeline
from bigtrk.records.run import BEST, STALL
from bigtrk.records.run_folder import read_run
from bigtrk.records.studies import RESULT, SEARCH, read_search
from bigtrk.reports.document import Document
from bigtrk.reports.model_card import model_card
from bigtrk.reports.page import write_page
from bigtrk.reports.pipeline import pipelines_report, summarise_pipelines
from bigtrk.reports.runs import runs_report, summarise
from bigtrk.reports.search import search_report, summarise_search
from bigtrk.reports.terminal import show
from bigtrk.reports.watch import dashboard
from bigtrk.studies.scaling.report import series_report
from tests.hostile.json_values import as_json
from tests.hostile.reader import of_files, refusal
from tests.hostile.records import CONTENT, METRIC_LINES, RUN_JSON

EVALUATED = "evaluations/graphs-20261122T064105Z.json"
GOOD = {name: as_json(content) for name, content in CONTENT.items()}
GOOD["metrics.jsonl"] = b"".join(as_json(line) + b"\n" for line in METRIC_LINES)


def show_all(document: Document, summary: object, page: Path) -> None:
    show(document, Console(file=io.StringIO()))
    write_page(document, page)
    json.dumps(summary, allow_nan=False)


def report_runs(folder: Path) -> None:
    runs = [read_run(folder / f"ranks000{n}-1") for n in (1, 2)]
    show_all(runs_report(runs), summarise(runs), folder / "page.html")
    for run in runs:
        model_card(run)


def report_series(folder: Path) -> None:
    show_all(series_report([folder])[0], None, folder / "series.html")


def plan_as_measured(folder: Path) -> None:
    """Takes the seconds of a run's step as `bigtrk plan --measured` does."""
    as_measured(CPU, read_run(folder / "ranks0002-1"))


def report(folder: Path) -> None:
    """Every report there is of runs, and of a series of two."""
    for told in [refusal(partial(one, folder)) for one in REPORTS]:
        if str(told):
            raise told


REPORTS = (report_runs, report_series, plan_as_measured)
OF_A_RUN = {name: name for name in ("run.json", "metrics.jsonl", BEST)}
OF_A_RUN[EVALUATED] = "evaluation.json"


def report_files() -> dict[str, bytes]:
    """The files of the second run of a series, and the series itself."""
    run = {f"ranks0002-1/{path}": GOOD[name] for path, name in OF_A_RUN.items()}
    return {**run, "series.json": GOOD["series.json"]}


def first_run() -> dict[str, bytes]:
    run = {f"ranks0001-1/{path}": GOOD[name] for path, name in OF_A_RUN.items()}
    return {**run, "ranks0001-1/run.json": as_json({**RUN_JSON, "world_size": 4})}


def watch(folder: Path) -> None:
    """A dashboard in the terminal, of a run that this process trains."""
    (folder / LOCK).mkdir(exist_ok=True)
    (folder / LOCK / Owner.here().name).touch()
    screen = Screen(file=io.StringIO())
    screen.print(dashboard(["run"], [RunFollower(folder).look()]))


def report_pipeline(folder: Path) -> None:
    pipelines = [read_pipeline(folder)]
    show_all(pipelines_report(pipelines), summarise_pipelines(pipelines), folder / "page.html")


def report_search(folder: Path) -> None:
    search = read_search(folder)
    show_all(search_report(search), summarise_search(search), folder / "page.html")


REPORT_READERS = {
    "report": of_files(report_files, report, first_run),
    "watch": of_files(lambda: {n: GOOD[n] for n in ("run.json", "metrics.jsonl", STALL)}, watch),
    "pipeline": of_files(
        lambda: {
            PIPELINE: GOOD["pipeline.json"],
            "evaluations/events-20261122T064105Z.json": GOOD["pipeline evaluation.json"],
        },
        report_pipeline,
    ),
    "search": of_files(
        lambda: {name: GOOD[name] for name in (SEARCH, RESULT)},
        report_search,
        lambda: {f"trial0000/{name}": GOOD[name] for name in ("run.json", "metrics.jsonl")},
    ),
}
