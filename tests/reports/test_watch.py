"""Tests what is shown of runs that train: in a table on a terminal, in lines without one."""

import io
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bigtrk.console import Screen
from bigtrk.disk.folder_lock import FolderLock, Owner
from bigtrk.records.live import LiveRun, Status, scalars
from bigtrk.records.metrics import EmbeddingMetrics
from bigtrk.records.run import StallRecord
from bigtrk.records.run_folder import append_metrics, write_run_record
from bigtrk.reports import watch as module
from bigtrk.reports.watch import SHOWN, Log, dashboard, notes, watch_runs
from tests.programs import Run
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

TRAINED: dict[str, Any] = {"config": {"training": {"epochs": 1}}, "steps_per_epoch": 3}
OWNER = Owner("node7", 99, 1, "elsewhere")
STALL = StallRecord(ranks=(1,), text="rank 1 says nothing")


def training(folder: Path = Path("0001"), **changes: Any) -> LiveRun:
    """A run in its second epoch."""
    known: dict[str, Any] = {"epoch": 2, "epochs": 3, "step": 4, "steps": 9, "idle": 0.5}
    known["newest"] = dict([*scalars(step_record(3)), *scalars(epoch_record(0))])
    known |= {"edges_per_second": 24_000.0, "step_seconds": 0.71}
    run = LiveRun(folder, Status.TRAINING, run_record(2), OWNER, 0.5, **known)
    return replace(run, **changes)


def screen(width: int = 100) -> Screen:
    """A terminal that keeps what it shows."""
    shape = {"width": width, "height": 60, "force_terminal": True, "_environ": {"TERM": "xterm"}}
    return Screen(file=io.StringIO(), record=True, **shape)


def shown(labels: list[str], runs: list[LiveRun], width: int = 100) -> list[str]:
    console = screen(width)
    console.print(dashboard(labels, runs))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_row_of_each_run_has_what_is_known() -> None:
    waiting = LiveRun(Path("0002"), Status.WAITING)
    drawn = shown(["0001", "0002"], [training(stall=STALL), waiting], 80)
    assert drawn[:2] == ["0001: stalled: rank 1 says nothing", "0002: has not begun"]
    cells = ["0001", "training", "2", "2/3", "4/9", "0.17500", "0.00406", "98.577", "24.0", "K"]
    assert [line.split() for line in drawn[-2:]] == [cells, ["0002", "waiting", *"-------"]]
    assert max(map(len, drawn)) <= 80


def test_each_name_is_that_of_a_scalar_of_a_record() -> None:
    embedded = epoch_record(0, embedding=EmbeddingMetrics(loss=0.5))
    assert SHOWN.keys() <= {x for one in (step_record(0), embedded) for x, _ in scalars(one)}


def test_names_are_shown_literally() -> None:
    run = training(Path("[red]x\x1b[31m"), status=Status.STOPPED)
    text = "\n".join(shown(["[red]x\x1b[31m"], [run]))
    assert "[red]x\\x1b[31m: ended before its end" in text
    assert "\x1b" not in text


RESUME = "bigtrk resume 0001 goes on"
ENDED = f"ended before its end; {RESUME}"
SILENT = "not heard from for 40 s: process 99 on node7"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"status": Status.STOPPED}, [ENDED]),
        ({"status": Status.LOST, "silent": 40.0}, [f"{SILENT} is gone; {RESUME}"]),
        ({"silent": 40.0}, [SILENT]),
        ({"idle": 29.0}, []),
        ({"idle": 31.0}, ["no record for 31 s; the last steps took 0.71 s each"]),
        ({"idle": 600.0, "step_seconds": 70.0}, []),
        ({"idle": 31.0, "status": Status.STARTING}, []),
        (
            {"stall": STALL.model_copy(update={"ends": True}), "status": Status.STOPPED},
            [ENDED, "ended by a stall: rank 1 says nothing"],
        ),
        (
            {"stall": STALL, "status": Status.FINISHED, "record": run_record(ended="minutes")},
            ["finished: its time is up"],
        ),
    ],
)
def test_what_a_reader_must_know_is_said(changes: dict[str, Any], said: list[str]) -> None:
    assert list(notes(training(**changes))) == said


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
def test_a_table_follows_runs_to_their_end(tmp_path: Path) -> None:
    done = run_writer(tmp_path)("0001", run_record(**TRAINED, ended="patience"))
    console = screen()
    writer = threading.Thread(target=write, args=(tmp_path / "0002", 0.1))
    writer.start()
    watch_runs([done, tmp_path / "0002"], console)
    writer.join()
    text = console.export_text()
    for state in ("0002: has not begun", "training", "1/3", "2/3", "3/3"):
        assert state in text
    assert "0001: finished: no better epoch came" in text
    assert "0002: finished: all epochs are trained" in text


@pytest.mark.usefixtures("quick")
def test_without_a_terminal_there_is_a_line_for_what_is_new(
    tmp_path: Path, run_program: Run
) -> None:
    writer = threading.Thread(target=write, args=(tmp_path / "0001", 0.1))
    writer.start()
    command = ["bigtrk", "watch", str(tmp_path / "0001")]
    status, printed, errors = run_program(command)
    writer.join()
    assert (status, errors) == (0, "")
    said = printed.splitlines()
    for step, loss in ((1, "0.70000"), (2, "0.35000")):
        assert f"0001  training  ranks 1  epoch 1/1  step {step}/3  loss {loss}" in printed
    assert said[-2].startswith("0001  finished  ranks 1  epoch 1/1  step 3/3")
    assert "  AUC % 98.577" in said[-2]
    assert said[-1] == "0001  finished: all epochs are trained"


def test_steps_alone_are_no_news_before_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    log, newer = Log("0001"), training(step=5)
    for now, run, lines in (
        (0.0, training(), 1),
        (9.0, newer, 0),
        (10.0, newer, 1),
        (10.5, training(epoch=3), 1),
        (11.0, training(epoch=3, idle=31.0), 1),
        (12.0, training(epoch=3, idle=32.0), 0),  # growing seconds are no news
    ):
        monkeypatch.setattr(time, "monotonic", partial(float, now))
        assert len(list(log.new_lines(run))) == lines, now
