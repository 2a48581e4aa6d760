"""Speed, speed-up and parallel efficiency against figures worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.reports import Run, read_run
from bigtrk.reports.scaling import any_gain, compare, comparison_notes, time_run
from tests.reports.run_folders import DATA, MACHINE, MakeRun, epoch_record, run_record, run_writer


def notes(*runs: Run) -> str:
    return " ".join(comparison_notes(compare(runs)))


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return run_writer(tmp_path)


def make(make_run: MakeRun, name: str, ranks: int, seconds: float, **changes: Any) -> Run:
    """A run whose first epoch is slow and whose others take `seconds`."""
    lines = [epoch_record(0, 10 * seconds), epoch_record(1, seconds), epoch_record(2, seconds)]
    return read_run(make_run(name, record=run_record(ranks, **changes), lines=lines))


def test_medians_leave_out_the_first_epoch(make_run: MakeRun) -> None:
    lines = [epoch_record(0, 90.0, peak_memory_bytes=7), epoch_record(1, 1.0), epoch_record(2, 2.0)]
    lines += [epoch_record(3, 30.0), epoch_record(4, 3.0, peak_memory_bytes=9 * 2**30)]
    timing = time_run(read_run(make_run(lines=lines)))
    assert timing.epochs == 4
    assert timing.epoch_seconds == 2.5
    assert timing.edges_per_second == pytest.approx((51000 / 2 + 51000 / 3) / 2)
    assert timing.peak_memory_bytes == 9 * 2**30


def test_one_epoch_counts_and_is_said_to_be_cold(make_run: MakeRun) -> None:
    run = read_run(make_run(lines=[epoch_record(0, 4.0)]))
    assert time_run(run).epoch_seconds == 4.0
    assert "include the warm-up" in notes(run)


def test_parallel_efficiency_is_t1_over_n_tn(make_run: MakeRun) -> None:
    times = {1: 12.0, 2: 7.0, 4: 4.0}
    runs = [make(make_run, f"n{n}", n, t) for n, t in times.items()]
    for one, (n, time) in zip(compare(runs), times.items(), strict=True):
        assert one.speedup == pytest.approx(12.0 / time)
        assert one.efficiency == pytest.approx(12.0 / (n * time))
        assert one.baseline == "n1"


def test_baseline_is_of_the_same_engine_where_there_is_one(make_run: MakeRun) -> None:
    zero = {"engine": "deepspeed", "engine_detail": "ZeRO-1"}
    runs = [
        make(make_run, "ddp1", 1, 10.0),
        make(make_run, "zero1", 1, 20.0, **zero),
        make(make_run, "zero2", 2, 10.0, **zero),
        make(make_run, "other2", 2, 5.0, engine="deepspeed", engine_detail="ZeRO-3"),
    ]
    assert [one.baseline for one in compare(runs)] == ["ddp1", "zero1", "zero1", "ddp1"]


def test_weak_scaling_compares_speed_per_edge(make_run: MakeRun) -> None:
    """The first and last rows of the table of Lazar et al.: about 23 times on 32 devices."""
    rate = 51000
    small = run_record(1, data=DATA.model_copy(update={"edges": rate}))
    large = run_record(32, data=DATA.model_copy(update={"edges": 32 * rate}))
    one = [epoch_record(0, 34.36, edges_per_second=rate / 34.36)]
    many = [epoch_record(0, 47.6, edges_per_second=32 * rate / 47.6)]
    runs = [
        read_run(make_run("one", record=small, lines=one)),
        read_run(make_run("many", record=large, lines=many)),
    ]
    assert compare(runs)[1].speedup == pytest.approx(32 * 34.36 / 47.6)
    assert compare(runs)[1].efficiency == pytest.approx(34.36 / 47.6)
    assert "weak scaling" in notes(*runs)


def test_other_model_or_accelerator_is_not_compared(make_run: MakeRun) -> None:
    gpu = MACHINE.model_copy(update={"accelerator": "NVIDIA H200"})
    runs = [
        make(make_run, "cpu", 1, 10.0),
        make(make_run, "gpu", 2, 1.0, machine=gpu),
        make(make_run, "wide", 2, 30.0, parameters=999),
    ]
    assert [one.baseline for one in compare(runs)] == ["cpu", "gpu", "wide"]
    assert not any_gain(compare(runs))
    assert "only like is compared" in notes(*runs)


def test_run_without_an_epoch_has_no_figures_and_is_no_baseline(make_run: MakeRun) -> None:
    young = read_run(make_run("young", record=run_record(1), lines=[]))
    runs = [young, make(make_run, "n2", 2, 5.0), make(make_run, "n4", 4, 2.5)]
    compared = compare(runs)
    assert compared[0].timing.edges_per_second is None
    assert [one.baseline for one in compared] == [None, "n2", "n2"]
    assert "young has no finished epoch" in notes(*runs)


@pytest.mark.parametrize(("host", "said"), [("node01", True), ("node02", False)])
def test_shared_cores_are_pointed_out(make_run: MakeRun, host: str, said: bool) -> None:
    elsewhere = MACHINE.model_copy(update={"host": host})
    runs = [make(make_run, "n1", 1, 5.0), make(make_run, "n2", 2, 5.0, machine=elsewhere)]
    assert ("more ranks add no cores" in notes(*runs)) == said
