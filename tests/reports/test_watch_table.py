"""Tests what a dashboard says of runs, in a table and beneath it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.records.live import Holder, LiveRun, Status, scalars
from bigtrk.records.metrics import AverageRecord, EmbeddingMetrics
from bigtrk.reports.watch import SHOWN, notes, state_table
from tests.reports.live_runs import OWNER, STALL, training
from tests.reports.run_folders import (
    METRICS,
    epoch_record,
    run_record,
    step_record,
    validation_record,
)


def test_each_name_is_that_of_a_scalar_of_a_record() -> None:
    metrics = METRICS.model_copy(update={"purity": 0.9})
    records = (
        step_record(0, pt_loss=0.1),
        validation_record(1, 2.0, loss=0.1),
        epoch_record(0, validation=metrics, average=AverageRecord(validation=metrics)),
        epoch_record(0, embedding=EmbeddingMetrics(loss=0.5)),
    )
    recorded = {name for record in records for name, _ in scalars(record)}
    assert not SHOWN.keys() - recorded


def test_runs_are_beside_each_other_and_what_none_knows_is_left_out() -> None:
    waiting = LiveRun(Path("0002"), Status.WAITING)
    table = state_table(["0001", "0002"], [training(), waiting])
    assert table.columns == ("", "0001", "0002")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["state"] == ("training", "waiting")
    assert rows["epoch"] == ("2/3", "-")
    assert rows["step"] == ("4/9", "-")
    assert rows["time to the end"] == ("2 min", "-")
    assert rows["edges/s, last steps"] == ("24.0 K", "-")
    assert rows["step/loss"] == ("0.17500", "-")
    assert rows["epoch/validation/auc, %"] == ("98.577", "-")
    assert rows["epoch/shares/compute, %"] == ("85.0", "-")
    assert rows["epoch/peak_memory_bytes"] == ("512 MiB", "-")
    assert "epoch/validation/purity, %" not in rows
    assert table.notes == ("0002: has not begun",)


SILENT = Holder(OWNER, True, 40.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"status": Status.STOPPED}, ["ended before its end; bigtrk resume 0001 goes on"]),
        (
            {"status": Status.LOST, "holder": SILENT},
            [
                "not heard from for 40 s: process 99 on node7 is gone; bigtrk resume 0001 goes on",
            ],
        ),
        ({"holder": SILENT}, ["not heard from for 40 s: process 99 on node7"]),
        ({"idle": 29.0}, []),
        ({"idle": 31.0}, ["no record for 31 s; the last steps took 0.71 s each"]),
        ({"idle": 600.0, "step_seconds": 70.0}, []),
        ({"idle": 31.0, "status": Status.STARTING}, []),
        ({"stall": STALL}, ["stalled: rank 1 says nothing"]),
        (
            {"stall": STALL.model_copy(update={"ends": True}), "status": Status.STOPPED},
            [
                "ended before its end; bigtrk resume 0001 goes on",
                "ended by a stall: rank 1 says nothing",
            ],
        ),
        ({"status": Status.UNREADABLE, "reason": "run.json: broken"}, ["run.json: broken"]),
    ],
)
def test_what_a_reader_must_know_is_said(changes: dict[str, Any], said: list[str]) -> None:
    assert list(notes(training(**changes))) == said


def test_a_finished_run_says_what_ended_it() -> None:
    run = replace(training(stall=STALL), status=Status.FINISHED, record=run_record(ended="minutes"))
    assert list(notes(run)) == ["finished: its time is up"]
