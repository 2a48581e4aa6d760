"""The report of a study: the same time and the same epochs for every method."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bigtrk.records.metrics import EpochRecord, MeanEdgeMetrics, ValidationRecord
from bigtrk.reports.study import StudyReport
from tests.reports.pages import self_contained
from tests.reports.run_folders import (
    epoch_record,
    run_record,
    run_writer,
    step_record,
    validation_record,
)


def epoch(number: int, seconds: float, auc: float | None, **changes: Any) -> EpochRecord:
    validation = MeanEdgeMetrics(auc=auc, efficiency=0.9, purity=0.8)
    shown = {"planned_steps": 3, "spikes": 0, "validation": validation}
    return epoch_record(number, seconds, **shown, **changes)


def between(step: int, seconds: float, auc: float) -> ValidationRecord:
    return validation_record(step, seconds, auc=auc, efficiency=0.7, purity=0.6)


@pytest.fixture
def report(tmp_path: Path) -> StudyReport:
    """Reports on `fast`, in epochs of 10 s, cut short in the third, and `slow`, with two of 14 s,
    four times the edges, and validation on the way.
    """
    make = run_writer(tmp_path)
    fast = [epoch(0, 10, 0.8), epoch(1, 10, 0.85), epoch(2, 6, 0.9, steps=2)]
    slow = [between(1, 7, 0.81), epoch(0, 14, 0.82, edges=204_000)]
    slow += [between(4, 24, 0.93), epoch(1, 14, 0.95, edges=204_000)]
    folders = {
        "fast": make("fast", run_record(), [step_record(i) for i in range(8)] + fast),
        "slow": make("slow", run_record(), [step_record(i) for i in range(6)] + slow),
    }
    return StudyReport(folders)


def test_methods_are_compared_at_the_time_of_the_shortest(report: StudyReport) -> None:
    assert report.seconds == 26
    found = report.summary()["methods"]
    assert found["fast"]["at_equal_time"]["auc"] == 0.9
    assert found["slow"]["at_equal_time"]["auc"] == 0.93, "not what came after"
    assert [point["seconds"] for point in found["slow"]["curve"]] == [7, 14, 24, 28]
    assert (found["fast"]["work"], found["slow"]["work"]) == (1.0, 4.0)


def test_an_epoch_cut_short_is_no_epoch(report: StudyReport) -> None:
    assert report.epochs == 2
    found = report.summary()["methods"]
    assert found["fast"]["at_equal_epochs"]["auc"] == 0.85
    assert found["slow"]["at_equal_epochs"]["auc"] == 0.95


def test_tables_say_who_wins_and_by_how_much(report: StudyReport) -> None:
    by_time, by_epochs = report.tables()
    assert by_time.title == "After 26 s of training"
    assert by_time.rows[0][-1] == "26.00", "seconds until the lowest AUC is reached"
    assert by_time.rows[1][-1] == "24.00"
    assert by_time.notes[-1] == "Highest AUC: slow, 3.000 points above fast."
    assert by_epochs.notes[-1] == "Highest AUC: slow, 10.000 points above fast."


def test_page_and_console(report: StudyReport, tmp_path: Path) -> None:
    report.write(tmp_path / "page.html", tmp_path / "study.json")
    page = self_contained(tmp_path / "page.html")
    assert [figure.title for figure in page.figures] == ["Efficiency, %", "Purity, %", "AUC, %"]
    auc = page.figure("AUC, %")
    assert (auc.trace("slow")["x"], auc.trace("slow")["y"]) == ([7, 14, 24, 28], [81, 82, 93, 95])
    assert auc.layout["xaxis"]["title"]["text"] == "seconds of training"
    assert "Highest AUC: slow, 3.000 points above fast." in page.texts
    console = Console(record=True, force_terminal=True, width=100)
    report.show(console)
    assert "After 2 epochs" in console.export_text()


def test_methods_that_finished_no_epoch(tmp_path: Path) -> None:
    make = run_writer(tmp_path)
    cut = [between(1, 3, 0.7), epoch(0, 4, None, steps=2, edges=34_000)]
    report = StudyReport({"one": make("one", run_record(), cut), "two": make("two", None, cut)})
    assert report.epochs == 0
    assert report.tables()[1].notes == ("Not every method finished an epoch.",)
    assert report.summary()["methods"]["one"]["work"] == 1.0
    assert report.tables()[0].notes[-1] == "Too few methods have an AUC to compare."
