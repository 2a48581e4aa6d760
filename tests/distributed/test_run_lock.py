"""Launches that start together do not write one run; a run that lost its folder ends."""

import multiprocessing
import os
import platform
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.folder_lock import LOCK, FolderLock, Owner
from bigtrk.errors import InputError
from bigtrk.parallel.process_group import process_group
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import ALONE, message, run_ranks
from tests.distributed.runs import settings, steps, train
from tests.distributed.test_stopping import before_step

ROUNDS = 2


def attempt(configuration: Configuration) -> tuple[str, str]:
    """A launch: its run's folder, or "", and what it was told."""
    try:
        return train(ALONE, configuration), ""
    except InputError as error:
        return "", str(error)


def launch(
    number: int, folder: Path, graphs: Path, named: bool, slow: bool, meet: Barrier, told: Any
) -> None:
    """Launch in a folder of each round, together with the other, and at another rate.

    slow: wait for the other once the run's folder is found free, before it is made.
    """
    make, waited = Path.mkdir, list[int]()

    def make_slowly(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name in ("run", "0001") and not waited:
            waited.append(meet.wait())
        make(path, *arguments, **options)

    if slow:
        Path.mkdir = make_slowly  # type: ignore[method-assign,assignment]
    chosen = settings(graphs, Path("run"), 1, {"name": "ddp"}).model_dump()
    chosen["optimizer"]["lr"] = 0.01 * (1 + number)
    chosen["run"]["folder"] = Path("run") if named else None
    for place in sorted(folder.iterdir())[: 1 if slow else ROUNDS]:
        os.chdir(place)
        if not slow:
            meet.wait()
        with process_group(ALONE):
            told.put((place, os.getpid(), *attempt(Configuration.model_validate(chosen))))


@pytest.mark.parametrize(("named", "slow"), [(True, True), (False, False)])
def test_two_launches_that_start_together_write_no_run_together(
    tmp_path: Path, graphs: Path, named: bool, slow: bool
) -> None:
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
    context = multiprocessing.get_context("forkserver")
    meet, told = context.Barrier(2, timeout=120), context.SimpleQueue()
    pair = [
        context.Process(target=launch, args=(n, tmp_path, graphs, named, slow, meet, told))
        for n in range(2)
    ]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0, 0]
    outcomes: dict[Path, list[tuple[int, str, str]]] = {}
    while not told.empty():
        place, *outcome = told.get()
        outcomes.setdefault(place, []).append(tuple(outcome))
    assert len(outcomes) == (1 if slow else ROUNDS)
    for place, both in outcomes.items():
        runs = sorted(run for _, run, _ in both if run)
        assert runs == (["run"] if named else ["runs/0001", "runs/0002"])
        writers = [process for process, run, _ in both if run]
        refusals = [said for _, run, said in both if not run]
        for said in refusals:  # the first may have ended meanwhile
            by = f"run: process {writers[0]} on {platform.node()} is writing there; wait until it"
            assert by in said or "run: already holds a run" in said
        for run in runs:
            assert [step for step, *_ in steps(place / run)] == [0, 1]
            assert not (place / run / LOCK).exists()


def resumes(ranks: Ranks, configuration: Configuration, run: Path) -> str | None:
    """Returns the message that a rank gets."""
    return message(lambda: train(ranks, configuration, run))


def test_no_rank_resumes_a_run_that_is_being_written(tmp_path: Path, graphs: Path) -> None:
    configuration = settings(graphs, tmp_path / "run", 1, {"name": "ddp"})
    (made,) = run_ranks(1, train, configuration)
    with FolderLock() as lock:
        lock.take(Path(made))
        told = run_ranks(2, resumes, configuration, Path(made))
        said = f"rank 0: {made}: process {os.getpid()} on {platform.node()} is writing there"
        assert [answer.partition(";")[0] for answer in told] == [said] * 2
        lock.check()
    assert len(steps(Path(made))) == 2
    run_ranks(1, train, configuration, Path(made))
    assert len(steps(Path(made))) == 6


def taken_by_another(run: Path) -> None:
    mine = run / LOCK / Owner.here().name
    mine.rename(mine.with_name("node7-1-1-elsewhere"))


LOSSES: dict[str, Callable[[Path], object]] = {
    "taken": taken_by_another,
    "moved": lambda run: run.rename(run.with_name("moved")),
}


def loses(_: Ranks, configuration: Configuration, how: str) -> str:
    run = configuration.run.folder
    assert run
    with before_step(3, lambda: LOSSES[how](run)):
        return attempt(configuration)[1]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("taken", "run: seemed abandoned and was taken over by process 1 on node7, so this"),
        ("moved", "run/lock: was moved or removed (No such file or directory), so this process"),
    ],
)
def test_a_run_that_lost_its_folder_writes_no_more(
    tmp_path: Path, graphs: Path, how: str, said: str
) -> None:
    configuration = settings(graphs, tmp_path / "run", 3, {"name": "ddp"})
    (told,) = run_ranks(1, loses, configuration, how)
    assert said in told
    left = tmp_path / ("moved" if how == "moved" else "run")
    assert len(steps(left)) == 2
    assert (tmp_path / "run").exists() == (how != "moved")
    assert not (left / "model.safetensors").exists()
