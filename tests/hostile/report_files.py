"""Files that reports are made of: valid ones, and all reports there are of them."""

import io
import json
from functools import partial
from pathlib import Path

from rich.console import Console

from bigtrk.cost.machines import CPU
from bigtrk.planning.scaling import as_measured, epoch_seconds
from bigtrk.records.pipeline import PIPELINE
from bigtrk.records.run import BEST
from bigtrk.records.search import RESULT, SEARCH
from bigtrk.reports import (
    pipelines_report,
    read_pipeline,
    read_run,
    read_search,
    runs_report,
    search_report,
    show,
    summarise,
    summarise_pipelines,
    summarise_search,
    write_page,
)
from bigtrk.reports.model_card import model_card
from bigtrk.studies.scaling.report import series_report
from tests.hostile.json_values import as_json
from tests.hostile.reader import refusal
from tests.hostile.records import (
    best_json,
    evaluation_json,
    metric_lines,
    pipeline_evaluation_json,
    result_json,
    run_json,
    search_json,
    series_json,
)
from tests.reports.pipeline_folders import PIPELINE_RECORD

EVALUATION = "evaluations/graphs-20261122T064105Z.json"
RECORDS = ("run.json", "metrics.jsonl", EVALUATION, "series.json", BEST)


def good_record(name: str) -> bytes:
    if name == "metrics.jsonl":
        return b"".join(as_json(line) + b"\n" for line in metric_lines())
    whole = {"run.json": run_json, EVALUATION: evaluation_json, BEST: best_json}
    return as_json({**whole, "series.json": series_json}[name]())


def report_runs(folder: Path) -> None:
    runs = [read_run(folder / f"ranks000{n}-1") for n in (1, 2)]
    show(runs_report(runs), Console(file=io.StringIO()))
    write_page(runs_report(runs), folder / "page.html")
    json.dumps(summarise(runs), allow_nan=False)
    for run in runs:
        model_card(run)


def report_series(folder: Path) -> None:
    series = series_report([folder])
    show(series.document, Console(file=io.StringIO()))
    write_page(series.document, folder / "series.html")


def plan_as_measured(folder: Path) -> None:
    """Takes the seconds of a run's step as `bigtrk plan --measured` does."""
    run = read_run(folder / "ranks0002-1")
    epoch_seconds(run, as_measured(CPU, run))


REPORTS = (report_runs, report_series, plan_as_measured)


def read_reports(folder: Path, content: bytes) -> object:
    """Every report there is of a run, and a series of two. First byte: which of
    RECORDS is `content`.
    """
    spoilt = RECORDS[content[0] % len(RECORDS)] if content else "run.json"
    for name in RECORDS:
        good = content[1:] if name == spoilt else good_record(name)
        for run in ("ranks0001-1", "ranks0002-1"):
            path = folder / "series" / ("" if name == "series.json" else run) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(good)
    other = as_json({**run_json(), "world_size": 4})
    (folder / "series" / "ranks0001-1" / "run.json").write_bytes(other)
    refused = [refusal(partial(report, folder / "series")) for report in REPORTS]
    for told in filter(str, refused):
        raise told
    return None


def report_seeds() -> list[bytes]:
    return [bytes([kind]) + good_record(name) for kind, name in enumerate(RECORDS)]


PIPELINE_FILES = {
    PIPELINE: PIPELINE_RECORD.model_dump(mode="json"),
    "evaluations/events-20261122T064105Z.json": pipeline_evaluation_json(),
}


def read_pipeline_reports(folder: Path, content: bytes) -> object:
    """Every report there is of a pipeline. First byte: which of PIPELINE_FILES is `content`."""
    spoilt = [*PIPELINE_FILES][content[0] % len(PIPELINE_FILES)] if content else PIPELINE
    for name, good in PIPELINE_FILES.items():
        path = folder / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[1:] if name == spoilt else as_json(good))
    pipelines = [read_pipeline(folder / "mine")]
    show(pipelines_report(pipelines), Console(file=io.StringIO()))
    write_page(pipelines_report(pipelines), folder / "page.html")
    json.dumps(summarise_pipelines(pipelines), allow_nan=False)
    return None


def pipeline_seeds() -> list[bytes]:
    return [bytes([kind]) + as_json(good) for kind, good in enumerate(PIPELINE_FILES.values())]


SEARCH_FILES = {SEARCH: search_json(), RESULT: result_json()}


def read_search_reports(folder: Path, content: bytes) -> object:
    """Every report there is of a search, as one of a population and as another one. First byte:
    which of SEARCH_FILES is `content`.
    """
    spoilt = [*SEARCH_FILES][content[0] % len(SEARCH_FILES)] if content else SEARCH
    trial = folder / "mine" / "trial0000"
    trial.mkdir(parents=True, exist_ok=True)
    for name in ("run.json", "metrics.jsonl"):
        (trial / name).write_bytes(good_record(name))
    for population in (SEARCH_FILES[SEARCH]["population"], None):
        request = as_json({**SEARCH_FILES[SEARCH], "population": population})
        for name, good in ((SEARCH, request), (RESULT, as_json(SEARCH_FILES[RESULT]))):
            (folder / "mine" / name).write_bytes(content[1:] if name == spoilt else good)
        search = read_search(folder / "mine")
        show(search_report(search), Console(file=io.StringIO()))
        write_page(search_report(search), folder / "page.html")
        json.dumps(summarise_search(search), allow_nan=False)
    return None


def search_seeds() -> list[bytes]:
    return [bytes([kind]) + as_json(good) for kind, good in enumerate(SEARCH_FILES.values())]
