"""A run is followed from before its beginning to its end, and whatever ends it is said."""

import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.folder_lock import LOCK, FolderLock, Owner
from bigtrk.errors import InputError
from bigtrk.records.live import History, RunFollower, Status
from bigtrk.records.record import read_if_any, write_record
from bigtrk.records.run import STALL, Resumption, StallRecord
from bigtrk.records.run_folder import METRICS, RUN, append_metrics, write_run_record
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

NAMES = {"step/loss"}
TRAINED: dict[str, Any] = {"config": {"training": {"epochs": 3}}, "steps_per_epoch": 3}


def dead() -> Owner:
    """A process that was on this host."""
    return replace(Owner.here(), started=Owner.here().started + 1)


def lay(folder: Path, owner: Owner, silent: float = 0.0) -> Path:
    held = folder / LOCK / owner.name
    held.parent.mkdir(parents=True, exist_ok=True)
    held.touch()
    os.utime(held, (time.time() - silent,) * 2)
    return held


def test_a_run_from_before_its_beginning_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    follower = RunFollower(run)
    assert follower.look().status is Status.WAITING
    run.mkdir()
    (run / "train.log").touch()  # as a search's trial begins
    assert follower.look().status is Status.WAITING
    with FolderLock() as lock:
        lock.take(run)
        assert follower.look().status is Status.STARTING
        write_run_record(run, run_record(**TRAINED))
        found = follower.look()
        assert (found.status, found.epochs, found.steps) == (Status.STARTING, 3, 9)
        assert (found.epoch, found.step, found.newest) == (None, None, {})
        for step in range(4):
            append_metrics(run, step_record(step))
        found = follower.look()
        assert (found.status, found.epoch, found.step) == (Status.TRAINING, 2, 4)
        assert found.newest["step/loss"] == 0.7 / 4
        append_metrics(run, epoch_record(2, train_loss=0.125))
        found = follower.look()
        assert found.newest["epoch/train_loss"] == 0.125
        assert not found.is_over
        write_run_record(run, run_record(**TRAINED, ended="epochs"))
    found = follower.look()
    assert (found.status, found.is_over, found.holder) == (Status.FINISHED, True, None)


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    run = run_writer(tmp_path)(lines=[step_record(0), step_record(1)])
    whole = (run / METRICS).read_bytes()
    follower = RunFollower(run)
    for end in range(whole.index(b"\n") + 1, len(whole) + 1):
        (run / METRICS).write_bytes(whole[:end])
        assert follower.look().step == (1 if end < len(whole) else 2)


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    run = run_writer(tmp_path)(
        record=run_record(**TRAINED), lines=[step_record(n, seconds=1.0) for n in range(5)]
    )
    follower = RunFollower(run)
    assert follower.look().step == 5
    shutil.move(run / METRICS, tmp_path / "before")
    append_metrics(run, step_record(0))
    assert follower.look().step == 1
    with FolderLock() as lock:
        lock.take(run)
        write_run_record(run, run_record(**TRAINED, resumed=(Resumption(step=1),)))
        assert follower.look().status is Status.STARTING
        append_metrics(run, step_record(1, loss=0.5))
        found = follower.look()
    assert (found.status, found.step) == (Status.TRAINING, 2)


def test_a_run_that_let_go_has_stopped_and_a_killed_one_is_lost(tmp_path: Path) -> None:
    run = run_writer(tmp_path)()
    follower = RunFollower(run)
    assert follower.look().status is Status.STOPPED
    held = lay(run, dead(), 100)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = follower.look()
    assert (found.status, found.is_over) == (Status.LOST, True)
    assert found.holder is not None
    assert abs(found.holder.silent - 100) < 30
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before, "who looks writes nothing"
    held.unlink()
    # A process elsewhere is believed until it is known.
    lay(run, replace(Owner.here(), host="node7", space="elsewhere"), 40)
    found = RunFollower(run).look()
    assert found.status is Status.TRAINING
    assert found.holder is not None
    assert found.holder.lives is None


def test_the_time_to_the_end_counts_what_is_between_steps(tmp_path: Path) -> None:
    """Four of nine steps took 8 s with a validation after the third: five more take 10 s."""
    run = run_writer(tmp_path)(
        record=run_record(**TRAINED), lines=[step_record(n, seconds=1.0) for n in range(4)]
    )
    os.utime(run / RUN, (1000.0, 1000.0))
    os.utime(run / METRICS, (1008.0, 1008.0))
    follower = RunFollower(run)
    assert follower.look().seconds_left is None  # nobody trains
    with FolderLock() as lock:
        lock.take(run)
        assert follower.look().seconds_left == 10.0
        config = {"training": {"epochs": 3, "minutes": 0.1}}
        write_run_record(run, run_record(**{**TRAINED, "config": config}))
        os.utime(run / RUN, (1000.0, 1000.0))
        assert follower.look().seconds_left == pytest.approx(6.0 - 4.0)
        write_run_record(run, run_record(config={"training": {"epochs": True}}))
        assert follower.look().seconds_left is None


def test_folders_that_are_no_runs_are_named_with_the_remedy(tmp_path: Path) -> None:
    search = tmp_path / "search"
    run_writer(search)("trial0000")
    with pytest.raises(InputError) as caught:
        RunFollower(search).look()
    assert str(caught.value) == (
        f"{search}: holds no run.json, so it is not the folder of a training run; name one that "
        f"is, such as {search / 'trial0000'}, or one that is not there yet"
    )
    with pytest.raises(InputError, match="is a file; name the folder of a run"):
        RunFollower(search / "trial0000" / RUN).look()


def test_a_broken_record_is_refused_at_each_look(tmp_path: Path) -> None:
    run = run_writer(tmp_path)(lines=[step_record(0)])
    with (run / METRICS).open("a") as lines:
        lines.write('{"kind": "step", "epoch": 0}\n')
    append_metrics(run, step_record(2))
    follower = RunFollower(run)
    for _ in range(2):
        with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: key 'step' is missing"):
            follower.look()


def test_a_stall_is_read_until_the_ranks_go_on(tmp_path: Path) -> None:
    run = run_writer(tmp_path)()
    follower = RunFollower(run)
    assert follower.look().stall is None
    written = StallRecord.of((1, 2), "rank 1 says nothing", ends=False)
    write_record(run / STALL, written)
    assert follower.look().stall == written
    write_record(run / STALL, None)
    write_record(run / STALL, None)
    assert follower.look().stall is None


def test_a_stall_of_very_many_ranks_can_be_read(tmp_path: Path) -> None:
    write_record(tmp_path / STALL, StallRecord.of(tuple(range(5000)), "x" * 100_000, ends=True))
    found = read_if_any(StallRecord, tmp_path / STALL)
    assert found is not None
    assert found.ranks == tuple(range(1000))
    (tmp_path / STALL).write_text("{")
    with pytest.raises(InputError, match=r"stall\.json: not a JSON file"):
        read_if_any(StallRecord, tmp_path / STALL)


def test_a_history_has_the_newest_values() -> None:
    history = History(first=2)
    for step, loss in enumerate((0.5, 0.25, 2.0, math.nan)):
        history.add(step_record(step, loss=loss, seconds=0.5))
    history.add(epoch_record(0, train_loss=0.25))
    assert (history.step, history.epoch, history.trained) == (3, 0, 1.0)
    assert history.newest["epoch/shares/compute"] == 0.85
