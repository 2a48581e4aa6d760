"""The evaluation of a pipeline: tables, page and summary, and what its records refuse."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from bigtrk.pipeline import evaluation
from bigtrk.records.evaluation import PipelineEvaluationRecord, StageLeft
from bigtrk.records.pipeline import PipelineFolder, read_pipeline
from bigtrk.records.run_folder import write_run_record
from bigtrk.reports.page import write_page
from bigtrk.reports.pipeline import (
    CATEGORIES,
    pipeline_evaluation_report,
    pipelines_report,
    summarise_pipelines,
)
from bigtrk.reports.pipeline import STAGES as STAGE_NAMES
from tests.reports.pages import printed, row_of, self_contained
from tests.reports.pipeline_folders import (
    LOSSES,
    PIPELINE_RECORD,
    STAGES,
    pipeline_evaluation,
    pipeline_folder,
)
from tests.reports.run_folders import run_record

PIPELINE = PipelineFolder(Path("mine"), PIPELINE_RECORD, (), {})


def shown(given: PipelineEvaluationRecord) -> str:
    return printed(pipeline_evaluation_report(PIPELINE, given))


def test_each_stage_has_what_it_loses_and_gains() -> None:
    text, title = shown(pipeline_evaluation()), "What each stage leaves"
    assert row_of(text, title, "true edges of the events")[1] == "1,000"
    last = row_of(text, title, "track builder")[1:]
    # 950 - 945 of 1000 target edges; 945 of 945 + 410 false ones, 950 of 950 + 500 before.
    assert last == ["1,050", "94.50", "-0.50", "69.74", "4.22", "88.00", "-2.00", "0.50"]
    assert row_of(text, title, "filter")[1:3] == ["4,000", "97.00"]


def test_the_budget_has_its_table() -> None:
    text = shown(pipeline_evaluation())
    assert row_of(text, "Where particles are lost", "radius graph: true edges lacking")[1] == "1"
    assert row_of(text, "Where particles are lost", "found")[1] == "88"
    assert "joins hits within 0.1" in text


def test_the_words_are_those_of_the_record() -> None:
    assert list(CATEGORIES) == list(evaluation.CATEGORIES)
    assert list(STAGE_NAMES) == list(evaluation.PARTS)


def test_nothing_to_be_found_makes_dashes() -> None:
    empty = [
        StageLeft(stage=x.stage, edges=0, true_edges=0, target_edges=0, findable=0, seconds=0)
        for x in STAGES
    ]
    none = dict.fromkeys(LOSSES, 0)
    given = pipeline_evaluation(events=0, hits=0, stages=tuple(empty), losses=none, loss_bins={})
    assert row_of(shown(given), "What each stage leaves", "filter")[1:4] == ["-"] * 3
    assert "--pt-min 0 takes those of unknown" in " ".join(shown(given).split())
    assert "What each stage leaves" in shown(pipeline_evaluation(stages=(), losses={}))


def test_pages_have_a_bar_and_plots(tmp_path: Path) -> None:
    folder = pipeline_folder(tmp_path / "mine", pipeline_evaluation())
    write_run_record(made(folder / "classifier"), run_record())
    write_page(
        pipeline_evaluation_report(read_pipeline(folder), pipeline_evaluation()),
        tmp_path / "page.html",
    )
    page = self_contained(tmp_path / "page.html")
    titles = [figure.title for figure in page.figures]
    assert titles == [
        "What each stage leaves, %",
        "Gained and lost by each stage, %",
        "Edges of an event",
        "Seconds of an event",
        "Track efficiency, %",
        "Particles lost, %",
        "Track efficiency, %",
        "figure",
    ]
    assert page.figures[-1].trace("found")["x"] == [88]
    [gained] = [figure.trace("edge purity") for figure in page.figures if "Gained" in figure.title]
    # 970 of 970 + 6200 target and false edges after the filter, 980 of 980 + 38100 before it.
    assert gained["y"][1] == pytest.approx(100 * (970 / 7170 - 980 / 39080))
    words = " ".join(page.texts)
    assert "The classifier limits the tracks. Losses in 100 particles" in words
    assert "the radius graph 1.0, the filter 2.0, the classifier 7.0, the track builder" in words
    assert "123 K parameters, 6 events of 51.0 K edges, 2026-11-20T19:00:00Z, bigtrk 0.1.0" in words


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_report_has_the_newest_evaluation_of_each_folder(tmp_path: Path) -> None:
    later = pipeline_evaluation(made=datetime(2026, 11, 23, tzinfo=UTC), weights={"filter": "old"})
    folder = pipeline_folder(
        tmp_path / "mine", later, pipeline_evaluation(), pipeline_evaluation(data="/other")
    )
    pipeline = read_pipeline(folder)
    assert pipeline.evaluations == (later, pipeline_evaluation(data="/other"))
    told = " ".join(printed(pipelines_report([pipeline])).split())
    assert "/data/events (before a stage was trained again), /other" in told
    assert told.count("What each stage leaves") == 2
    write_page(pipelines_report([pipeline]), tmp_path / "page.html")
    assert "Pipeline mine" in (tmp_path / "page.html").read_text()
    [summarised] = json.loads(json.dumps(summarise_pipelines([pipeline])))["pipelines"]
    assert [each["data"] for each in summarised["evaluations"]] == ["/data/events", "/other"]


def test_folders_that_hold_no_pipeline_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x: holds no pipeline\.json"):
        read_pipeline(tmp_path / "x")
    folder = pipeline_folder(tmp_path / "mine", pipeline_evaluation())
    [file] = (folder / "evaluations").iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(InputError, match="format 2, but this bigtrk reads format 1; update"):
        read_pipeline(folder)
