"""Searches whose trainings are a stand-in's, for tests: data, templates, and processes to kill."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bigtrk import shipped
from bigtrk.console import exit_on_bad_input
from bigtrk.studies.search import trainings as search_trainings
from bigtrk.studies.search.plan import Search, plan_search
from bigtrk.studies.search.search import run_search
from bigtrk.training.checkpoint.folder import commit, make_temporary
from bigtrk.training.checkpoint.manifest import Checkpoint, EpochTotals, Progress
from bigtrk.training.guards import LossHistory
from bigtrk.training.schedule import Plateau
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import FORKSERVER
from tests.distributed.runs import write_in_sectors

STAND_IN = Path(__file__).with_name("stand_in.py")
EPOCHS = 4
LOOK = 0.02  # s


def write_data(folder: Path) -> None:
    """Writes two events, and the checkpoints that the stand-in copies: one with a step an epoch."""
    write_in_sectors(folder, [random_graph(seed, 30, 90) for seed in range(2)], 2)
    (folder / "checkpoints").mkdir()
    for epoch in range(1, EPOCHS + 1):
        written = write_checkpoint(folder / f"made-{epoch}", epoch)
        written.rename(folder / "checkpoints" / written.name)


def write_checkpoint(run: Path, epoch: int) -> Path:
    """Writes what a run leaves after an epoch, without weights."""
    at = Progress(epoch, 0, epoch, Plateau(), LossHistory(), EpochTotals())
    written = Checkpoint(at, {}, (), "", "DDP", {}, {})
    run.mkdir(parents=True, exist_ok=True)
    make_temporary(run / "checkpoints", written.name)
    commit(run / "checkpoints", written)
    return run / "checkpoints" / written.name


def use_stand_in() -> None:
    """Has searches of this process launch the stand-in, and look at it often."""
    shipped.TRAIN = STAND_IN
    search_trainings.LOOK = LOOK


def plan_here(data: Path, trials: int) -> Search:
    """Plans the search of `space.yaml` in this folder."""
    arguments = [str(data / "graphs"), f"training.epochs={EPOCHS}"]
    names = Path("space.yaml"), arguments, Path("empty.yaml"), Path("search")
    return plan_search(*names, trials)


def search_there(folder: Path, environment: dict[str, str], trials: int, at_once: int) -> None:
    """Goes on with the search in a folder."""
    os.chdir(folder)
    os.environ.update(environment)
    use_stand_in()
    planned = plan_here(Path(environment["TEMPLATE"]), trials)
    exit_on_bad_input("search", lambda: run_search(planned, trials, at_once, 1, None))


@contextmanager
def searcher(seconds: float, trials: int, at_once: int = 1) -> Iterator[Any]:
    """A searcher as a process of its own, whose epochs take so long, until the block ends."""
    environment = {**os.environ, "STAND_IN_SECONDS": str(seconds)}
    given = Path.cwd(), environment, trials, at_once
    process = FORKSERVER.Process(target=search_there, args=given)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def stop(process: Any) -> None:
    """Asks a searcher to end, which it does as one that is to be started again."""
    process.terminate()
    process.join()
    assert process.exitcode == os.EX_TEMPFAIL


def trainings() -> list[int]:
    """Lists the processes that hold a run folder of the search in this folder."""
    owners = [path.name for path in Path("search").glob("trial*/lock/*")]
    return [int(name.rsplit("-", 3)[1]) for name in owners]


def wait_for(what: Callable[[], Any]) -> Any:
    """Returns what `what` returns once that is something."""
    end = time.monotonic() + 300
    while not (found := what()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
    return found


def kill(process: int) -> None:
    """Kills a process, unless it has just ended."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def result() -> dict[str, Any]:
    """Reads what the search in this folder found."""
    found: dict[str, Any] = json.loads(Path("search/result.json").read_text())
    return found


def recorded(number: int) -> list[int]:
    """Lists the epochs in a trial's record, as they stand there."""
    lines = Path(f"search/trial{number:04d}/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def check_accounts(most: int) -> list[dict[str, Any]]:
    """Each parameter set in one folder, each epoch recorded once, and a value or pruning."""
    trials: list[dict[str, Any]] = result()["trials"]
    assert len({trial["number"] for trial in trials}) == len(trials) == most
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}
    folders = sorted(Path("search").glob("trial*"))
    assert len(folders) == most
    in_folders = Counter(
        json.loads((folder / "run.json").read_text())["config"]["optimizer"]["lr"]
        for folder in folders
    )
    assert in_folders == Counter(trial["settings"]["optimizer.lr"] for trial in trials)
    assert max(in_folders.values()) == 1
    for trial in trials:
        epochs, rate = recorded(trial["number"]), trial["settings"]["optimizer.lr"]
        assert epochs == list(range(len(epochs)))
        assert len(epochs) == EPOCHS or trial["state"] == "pruned"
        seen = EPOCHS if trial["state"] == "complete" else trial["epochs"]
        assert trial["value"] == pytest.approx(rate + 1 / seen)
    return trials
