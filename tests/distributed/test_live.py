"""Trainings are watched: what is seen is what the records say, and who was killed is found lost."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bigtrk.parallel.heartbeat import Verdict
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.watchdog import tell
from bigtrk.records.live import LiveRun, RunFollower, Status
from bigtrk.records.record import read_if_any
from bigtrk.records.run import STALL, StallRecord
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import ALONE, FORKSERVER, run_ranks
from tests.distributed.runs import settings, train, write_events
from tests.distributed.test_stopping import before_step


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder)
    return folder


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def watched(ranks: Ranks, configuration: Configuration) -> list[LiveRun]:
    """Trains; returns what is seen of the run before a rank's third step."""
    seen: list[LiveRun] = []
    run = configuration.run.folder
    assert run
    follower = RunFollower(run)
    with before_step(3, lambda: seen.append(follower.look())):
        train(ranks, configuration)
    return seen


def test_what_is_seen_is_what_the_records_say(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    (seen,), *_ = run_ranks(2, watched, settings(graphs, run, 2, {"name": "ddp"}))
    lines = lines_of(run)
    steps = [line for line in lines if line["kind"] == "step"]
    assert (seen.status, seen.step, seen.steps) == (Status.TRAINING, 2, 4)
    assert seen.newest["step/loss"] == steps[1]["loss"]
    assert seen.owner is not None
    found = RunFollower(run).look()
    assert (found.status, found.epoch, found.step, found.epochs) == (Status.FINISHED, 2, 4, 2)
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert found.newest["epoch/shares/exchange"] == epochs[1]["shares"]["exchange"]
    assert found.newest["epoch/peak_memory_bytes"] == epochs[1]["peak_memory_bytes"]
    assert found.newest["epoch/validation/loss"] == epochs[1]["validation"]["loss"]


def be_killed(configuration: Configuration) -> None:
    folder = configuration.run.folder
    assert folder

    def end() -> None:
        while not (folder / "checkpoints" / "latest.json").exists():  # a thread writes it
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    with before_step(4, end), process_group(ALONE):
        train(ALONE, configuration)


def test_a_killed_training_is_lost_until_it_is_resumed(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    configuration = settings(graphs, run, 2, {"name": "ddp"})
    killed = FORKSERVER.Process(target=be_killed, args=(configuration,))
    killed.start()
    killed.join()
    follower = RunFollower(run)
    found = follower.look()
    assert (found.status, found.step, found.steps) == (Status.LOST, 3, 4)
    assert found.owner is not None
    assert found.owner.process == killed.pid
    run_ranks(1, train, configuration, run, "training.epochs=2")
    found = follower.look()
    assert (found.status, found.step) == (Status.FINISHED, 4)
    steps = [line["step"] for line in lines_of(run) if line["kind"] == "step"]
    assert steps == [0, 1, 2, 3]


def awaited(run: Path, there: bool) -> StallRecord | None:
    """Returns what the folder says of a stall, once that is there or gone: a thread writes it."""
    end = time.monotonic() + 30
    while ((found := read_if_any(StallRecord, run / STALL)) is not None) != there:
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def stalls(ranks: Ranks, configuration: Configuration) -> list[StallRecord | None]:
    """Trains; returns what the run's folder says of stalls while rank 0's watchdog is made to."""
    run, seen = configuration.run.folder, list[StallRecord | None]()
    assert run

    def look() -> None:
        tell(Verdict("rank 1 says nothing", (1,)))
        seen.append(awaited(run, there=True))
        tell(None)
        seen.append(awaited(run, there=False))
        tell(Verdict("rank 1 has been silent", (1,)), ends=True)
        seen.append(awaited(run, there=True))

    with before_step(2, look if ranks.is_first else list):
        train(ranks, configuration)
    return seen


def test_the_folder_says_which_ranks_stall_until_it_is_resumed(
    tmp_path: Path, graphs: Path
) -> None:
    run = tmp_path / "run"
    configuration = settings(graphs, run, 1, {"name": "ddp"})
    seen, _ = run_ranks(2, stalls, configuration)
    assert [found and (found.ranks, found.text, found.ends) for found in seen] == [
        ((1,), "rank 1 says nothing", False),
        None,
        ((1,), "rank 1 has been silent", True),
    ]
    assert read_if_any(StallRecord, run / STALL) == seen[-1]
    run_ranks(1, train, configuration, run)
    assert not (run / STALL).exists()
