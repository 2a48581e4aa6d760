"""Tests what a run prints of its epochs."""

import time
from pathlib import Path
from typing import Any

import pytest

from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Assignment
from bigtrk.records.metrics import AverageRecord, EpochRecord, MeanEdgeMetrics
from bigtrk.records.run import End
from bigtrk.training.monitoring.announce import EpochLines, announce, announce_best
from bigtrk.training.schedule import Best, BestEpoch
from bigtrk.training.settings import TrainingSettings
from bigtrk.training.steps import RoutedStep
from tests.reports.run_folders import epoch_record, run_record


def record(epoch: int, seconds: float = 4, **others: Any) -> EpochRecord:
    known = {"train_loss": 0.5, "lr": 0.00123456, "validation": None, **others}
    return epoch_record(epoch, seconds, **known)


def lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    minutes: float | None = None,
    rank: int = 0,
    average: AverageRecord | None = None,
) -> list[str]:
    """The lines of epochs 3 and 4 of 20, of 50 s each, 40 s of training; 2 was trained before."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    settings = TrainingSettings(epochs=20, minutes=minutes)
    shown = EpochLines(Ranks(rank, 2, rank, 2, "test"), settings)
    shown.show(record(1, 1e-9, batch_seconds=None))
    assert " left" not in capsys.readouterr().out
    for epoch in (2, 3):
        now[0] += 50
        shown.show(record(epoch, 40, average=average))
    return capsys.readouterr().out.splitlines()


def test_rank_0_prints_a_line_with_learning_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    average = AverageRecord(validation=MeanEdgeMetrics(loss=0.25, auc=0.75))
    first, second = lines(monkeypatch, capsys, average=average)
    assert first.startswith("epoch 3/20  train loss 0.50000")
    assert "validation: -  averaged weights: loss 0.2500  auc 0.7500  lr 0.00123  " in first
    assert first.endswith("  14 min left"), "17 epochs of 50 s"
    assert second.endswith("  13 min left")
    assert lines(monkeypatch, capsys, rank=1) == []
    first, second = lines(monkeypatch, capsys, minutes=2)
    assert first.endswith("  80 s left"), "of training, which 40 s are spent of"
    assert second.endswith("  40 s left")


@pytest.mark.parametrize("minutes", [None, 8.0])
def test_a_log_has_a_line_of_each_tenth(
    minutes: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training has 200 epochs of 4 s, which take 800 s, or their first 8 minutes, 120 epochs."""
    shown = EpochLines(Ranks(0, 1, 0, 1, "test"), TrainingSettings(epochs=200, minutes=minutes))
    last = 120 if minutes else 200
    for epoch in range(last):
        shown.show(record(epoch))
    told = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in told] == [
        f"epoch {number}/200" for number in (1, *range(last // 10, last + 1, last // 10))
    ]
    # One of few epochs has a line of each.
    shown = EpochLines(Ranks(0, 1, 0, 1, "test"), TrainingSettings(epochs=12))
    for epoch in range(12):
        shown.show(record(epoch))
    assert len(capsys.readouterr().out.splitlines()) == 12


def test_the_best_epoch_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def told(search: Best | None, end: End) -> list[str]:
        for rank in (0, 1):
            announce_best(Ranks(rank, 2, rank, 2, "test"), search, end)
        return capsys.readouterr().out.splitlines()

    best = "best epoch 3: auc 0.98577, in step-00000012"
    search = Best("auc", BestEpoch(0.98577, 2, 12), waited=4)
    assert told(search, "epochs") == [best]
    ended = "no better epoch in the last 4: training.best.patience ends the run"
    assert told(search, "patience") == [ended, best]
    none = "no epoch recorded auc (training.best.metric), so none is the best"
    assert told(Best("auc"), "epochs") == [none]
    assert told(None, "epochs") == []


@pytest.mark.parametrize(
    ("stored", "mini_batch", "way"),
    [
        (1, False, ", or cut the events in 2 sectors or more"),
        (4, False, ", or training.routing=stored to train events in all their sectors"),
        (4, True, ""),  # parts of events are trained alone, however many sectors are stored
    ],
)
def test_idle_ranks_are_told_with_the_setting_that_helps(
    stored: int, mini_batch: bool, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    step = RoutedStep([0], [[Assignment(0, (0,), 1, 0), None]], mini_batch)
    announce(Ranks(0, 2, 0, 2, "test"), Path("runs/0001"), run_record(2), [step], stored)
    assert capsys.readouterr().out.splitlines()[1] == (
        f"a step gives work to only 1 of 2 ranks; set training.events_per_step to 2 or more{way}"
    )
