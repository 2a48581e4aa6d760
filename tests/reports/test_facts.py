"""The speed of a run against figures worked out by hand."""

import pytest

from bigtrk.records.run_folder import read_run
from bigtrk.reports.facts import time_run
from bigtrk.reports.runs import summarise
from tests.reports.run_folders import MakeRun, epoch_record


def test_medians_leave_out_the_first_epoch(make_run: MakeRun) -> None:
    lines = [epoch_record(0, 90.0, peak_memory_bytes=7), epoch_record(1, 1.0), epoch_record(2, 2.0)]
    lines += [epoch_record(3, 30.0), epoch_record(4, 3.0, peak_memory_bytes=9 * 2**30)]
    timing = time_run(read_run(make_run(lines=lines)))
    assert timing.epochs == 4
    assert timing.epoch_seconds == 2.5
    assert timing.edges_per_second == pytest.approx((51000 / 2 + 51000 / 3) / 2)
    assert timing.peak_memory_bytes == 9 * 2**30


def test_one_epoch_counts_and_is_said_to_be_cold(make_run: MakeRun) -> None:
    run, young = (
        read_run(make_run(name, lines=lines))
        for name, lines in (("one", [epoch_record(0, 4.0)]), ("young", []))
    )
    assert time_run(run).epoch_seconds == 4.0
    assert time_run(young).edges_per_second is None
    first, second = summarise([run, young])["notes"]
    assert "include the warm-up" in first
    assert "young has no finished epoch" in second
