"""Trainings are watched: what is seen is what the records say, and who was killed is found lost."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.live import LiveRun, RunFollower, Status
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import ALONE, FORKSERVER, run_ranks
from tests.distributed.runs import settings, train
from tests.distributed.test_stopping import before_step
from tests.present import present


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
    assert present(found.owner).process == killed.pid
    run_ranks(1, train, configuration, run, "training.epochs=2")
    found = follower.look()
    assert (found.status, found.step) == (Status.FINISHED, 4)
    steps = [line["step"] for line in lines_of(run) if line["kind"] == "step"]
    assert steps == [0, 1, 2, 3]
