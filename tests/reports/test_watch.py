"""Tests the dashboard in a terminal, and the lines without one."""

import io
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.console import Screen
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.records.live import LiveRun, Status
from bigtrk.records.run_folder import append_metrics, write_run_record
from bigtrk.reports import watch as module
from bigtrk.reports.watch import Log, Watch, dashboard, show_dashboard
from tests.programs import run_here
from tests.reports.live_runs import STALL, training
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

TRAINED: dict[str, Any] = {"config": {"training": {"epochs": 1}}, "steps_per_epoch": 3}


def screen(width: int = 100) -> Screen:
    """A terminal that keeps what it shows."""
    shape = {"width": width, "height": 60, "force_terminal": True, "_environ": {"TERM": "xterm"}}
    return Screen(file=io.StringIO(), record=True, **shape)


def shown(labels: list[str], runs: list[LiveRun], width: int) -> list[str]:
    console = screen(width)
    console.print(dashboard(labels, runs, console))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_dashboard_names_each_number_beside_its_value() -> None:
    drawn = shown(["0001"], [training()], 100)
    cells = [line.split() for line in drawn]
    assert ["step/loss", "0.17500"] in cells
    assert ["epoch/edges_per_second", "25.5", "K"] in cells
    assert ["time", "to", "the", "end", "2", "min"] in cells


def test_a_run_fits_on_the_smallest_terminal() -> None:
    drawn = shown(["0001"], [training(stall=STALL)], 80)
    assert drawn[0] == "0001: stalled: rank 1 says nothing"
    assert len(drawn) <= 24


def test_many_runs_are_in_tables_that_fit() -> None:
    labels = [f"run{n:02d}" for n in range(20)]
    drawn = shown(labels, [training(Path(name)) for name in labels], 60)
    assert max(map(len, drawn)) <= 60
    text = "\n".join(drawn)
    assert "…" not in text
    for name in labels:
        assert text.count(name) == 1


def test_names_are_shown_literally() -> None:
    run = replace(training(Path("[red]x\x1b[31m")), status=Status.STOPPED)
    text = "\n".join(shown(["[red]x\x1b[31m"], [run], 100))
    assert "[red]x\\x1b[31m: ended before its end" in text
    assert "\x1b" not in text


def write(run: Path, after: float) -> None:
    """Trains a run of one epoch, as far as its folder goes."""
    time.sleep(after)
    run.mkdir()
    with FolderLock() as lock:
        lock.take(run)
        write_run_record(run, run_record(**TRAINED))
        for step in range(3):
            time.sleep(after)
            append_metrics(run, step_record(step))
        append_metrics(run, epoch_record(0))
        write_run_record(run, run_record(**TRAINED, ended="epochs"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.02)
    monkeypatch.setattr(module, "EVERY", 0.0)


@pytest.mark.usefixtures("quick")
def test_a_dashboard_follows_runs_to_their_end(tmp_path: Path) -> None:
    done = run_writer(tmp_path)("0001", run_record(**TRAINED, ended="patience"))
    console, watch = screen(), Watch([done, tmp_path / "0002"])
    writer = threading.Thread(target=write, args=(tmp_path / "0002", 0.1))
    writer.start()
    show_dashboard(watch, console)
    writer.join()
    text = console.export_text()
    for state in ("0002: has not begun", "training", "1/3", "2/3", "3/3"):
        assert state in text
    assert "0001: finished: no better epoch came" in text
    assert "0002: finished: all epochs are trained" in text


@pytest.mark.usefixtures("quick")
def test_without_a_terminal_there_is_a_line_for_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = threading.Thread(target=write, args=(tmp_path / "0001", 0.2))
    writer.start()
    command = ["bigtrk", "watch", str(tmp_path / "0001")]
    status, printed, errors = run_here(command, monkeypatch, capsys)
    writer.join()
    assert (status, errors) == (0, "")
    said = printed.splitlines()
    for step, loss in ((1, "0.70000"), (2, "0.35000")):
        (line,) = [line for line in said if f"  step {step}/3  " in line and "step/loss" in line]
        assert line.startswith("0001  training  epoch 1/1  step ")
        assert f"  step/loss {loss}" in line
    assert any("epoch/validation/auc 98.577 %" in line for line in said)
    assert said[-2].startswith("0001  finished  epoch 1/1  step 3/3")
    assert said[-1] == "0001  finished: all epochs are trained"


def test_steps_alone_are_no_news_before_ten_seconds() -> None:
    log = Log("0001")
    assert len(list(log.new_lines(training(), 0.0))) == 1
    newer = training(step=5, newest={**training().newest, "step/loss": 0.1})
    assert list(log.new_lines(newer, 9.0)) == []
    (line,) = log.new_lines(newer, 10.0)
    assert line == "0001  training  epoch 2/3  step 5/9  2 min left  step/loss 0.10000"
    (line,) = log.new_lines(training(newest={"epoch/train_loss": 0.5}), 10.5)
    assert line.endswith("epoch/train_loss 0.50000")
    log = Log("0001")
    assert len(list(log.new_lines(training(idle=31.0), 0.0))) == 2
    assert list(log.new_lines(training(idle=32.0), 1.0)) == [], "growing seconds are no news"


@pytest.mark.usefixtures("quick")
def test_a_run_that_becomes_unreadable_leaves_the_others(tmp_path: Path) -> None:
    make = run_writer(tmp_path)
    watch = Watch([make("0001"), make("0002")])
    (tmp_path / "0001" / "run.json").write_text("{")
    first, second = watch.look()
    assert (first.status, second.status) == (Status.UNREADABLE, Status.STOPPED)
    assert "run.json: not a JSON file" in first.reason
    write_run_record(tmp_path / "0001", run_record(ended="minutes"))
    assert watch.look()[0].status is Status.FINISHED
