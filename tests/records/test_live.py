"""A run is followed from before its beginning to its end, and its end is explained."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.folder_lock import LOCK, FolderLock, Owner
from bigtrk.errors import InputError
from bigtrk.records.live import RunFollower, Status
from bigtrk.records.record import write_record
from bigtrk.records.run import STALL, Resumption, StallRecord
from bigtrk.records.run_folder import METRICS, RUN, append_metrics, write_run_record
from bigtrk.records.studies import SEARCH
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

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
    assert (found.status, found.is_over, found.owner) == (Status.FINISHED, True, None)


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
    assert abs(found.silent - 100) < 30
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before, "who looks writes nothing"
    held.unlink()
    # A process elsewhere is believed until it is known.
    lay(run, replace(Owner.here(), host="node7", space="elsewhere"), 40)
    assert RunFollower(run).look().status is Status.TRAINING


def test_folders_that_are_no_runs_are_named_with_the_remedy(tmp_path: Path) -> None:
    search = tmp_path / "a search"
    run_writer(search)("trial0000")
    other = "holds no run.json, so it is not the folder of a training run"
    for place, found in ((search, other), (search / "trial0000" / RUN, "is a file")):
        with pytest.raises(InputError) as caught:
            RunFollower(place).look()
        said = f"{place}: {found}; name the folder of a run, such as runs/0001"
        assert str(caught.value) == said
    (search / SEARCH).touch()
    with pytest.raises(
        InputError, match=r"search: holds a search; show it by: bigtrk report '.*/a search'"
    ):
        RunFollower(search).look()


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
    write_record(run / STALL, StallRecord.of(tuple(range(5000)), "x" * 100_000, ends=True))
    found = follower.look().stall
    assert found is not None
    assert found.ranks == tuple(range(1000)), "of very many ranks the first"
    (run / STALL).write_text("{")
    with pytest.raises(InputError, match=r"stall\.json: is not valid JSON"):
        follower.look()
