"""Searches, with a training that a stand-in writes: pruned, failed, killed and gone on with."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from bigtrk.console import exit_on_bad_input
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.records.search import Storage
from bigtrk.studies.search import launcher, searcher, study
from bigtrk.studies.search import plan as planning
from bigtrk.studies.search.plan import Search, plan_search
from bigtrk.studies.search.run_search import run_search
from bigtrk.studies.search.study import SharedStudy
from bigtrk.training.checkpoint.folder import commit, make_temporary
from bigtrk.training.checkpoint.manifest import Checkpoint
from bigtrk.training.checkpoint.progress import EpochTotals, Progress
from bigtrk.training.schedule import Plateau
from bigtrk.training.spikes import LossHistory
from tests.distributed.graphs import random_graph
from tests.distributed.ranks import FORKSERVER
from tests.distributed.runs import write_in_sectors
from tests.programs import CHECKOUT

STAND_IN = Path(__file__).with_name("stand_in.py")
EPOCHS = 4  # of the stand-in
SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.0, high: 1.0}
pruning: {first: 1, factor: 2}
"""
Plan = Callable[..., Search]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two events, and the checkpoints that the stand-in copies: one with a step per epoch."""
    folder = tmp_path_factory.mktemp("data")
    write_in_sectors(folder, [random_graph(seed, 30, 90) for seed in range(2)], 2)
    for epoch in range(1, EPOCHS + 1):
        at = Progress(epoch, 0, epoch, Plateau(), LossHistory(), EpochTotals())
        written = Checkpoint(at, {}, (), "", "DDP", {}, {})
        root = folder / f"made-{epoch}" / "checkpoints"
        root.parent.mkdir()
        make_temporary(root, written.name)
        commit(root, written)
        (folder / "checkpoints").mkdir(exist_ok=True)
        (root / written.name).rename(folder / "checkpoints" / written.name)
    return folder


@pytest.fixture
def plan(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("TEMPLATE", str(data))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yaml").touch()

    def make(space: str = SPACE, storage: Storage = "sqlite") -> Search:
        (tmp_path / "space.yaml").write_text(space)
        arguments = [str(data / "graphs"), "training.epochs=4"]
        return plan_search(
            Path("space.yaml"), arguments, Path("empty.yaml"), Path("search"), storage
        )

    return make


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches the stand-in: the script's path follows a launcher of the user's."""
    monkeypatch.setattr(launcher, "TRAIN", STAND_IN)
    monkeypatch.setattr(searcher, "LOOK", 0.02)


def result(folder: Path = Path("search")) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "result.json").read_text())["trials"]
    return found


def recorded(number: int) -> list[int]:
    """The epochs in a trial's record, as they stand there."""
    lines = Path(f"search/trial{number:04d}/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def check_accounts(trials: list[dict[str, Any]], most: int) -> None:
    """Each parameter set in one folder, each epoch recorded once, and a value or pruning."""
    assert sorted(trial["number"] for trial in trials) == list(range(most))
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}
    rates = [trial["settings"]["optimizer.lr"] for trial in trials]
    folders = sorted(Path("search").glob("trial*"))
    assert len(folders) == most
    in_folders = [
        json.loads((folder / "run.json").read_text())["config"]["lr"] for folder in folders
    ]
    assert Counter(in_folders) == Counter(rates)
    assert max(Counter(in_folders).values()) == 1
    for trial in trials:
        epochs, rate = recorded(trial["number"]), trial["settings"]["optimizer.lr"]
        assert epochs == list(range(len(epochs)))
        assert len(epochs) == EPOCHS or trial["state"] == "pruned"
        wanted = rate + 1 / EPOCHS if trial["state"] == "complete" else rate + 1 / trial["epochs"]
        assert trial["value"] == pytest.approx(wanted)


@pytest.mark.parametrize("storage", get_args(Storage))
@pytest.mark.parametrize("at_once", [1, 2])
def test_a_search_trains_prunes_and_names_the_best(
    plan: Plan, storage: Storage, at_once: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run_search(plan(storage=storage), 6, at_once, 1, None)
    trials = result()
    check_accounts(trials, 6)
    values = [trial["value"] for trial in trials if trial["state"] == "complete"]
    assert values == sorted(values)
    if at_once == 1:
        assert "pruned" in {trial["state"] for trial in trials}
    out = capsys.readouterr().out
    assert f"the best: bigtrk report search/trial{trials[0]['number']:04d}" in out
    assert "trial0000 epoch 1, train_loss" in out
    before = {path: path.stat().st_mtime_ns for path in Path("search").glob("trial*/*")}
    run_search(plan(storage=storage), 6, at_once, 1, None)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run_search(plan(storage=storage), 7, at_once, 1, None)
    check_accounts(result(), 7)
    assert result()[0]["value"] <= trials[0]["value"]


def test_a_trial_that_comes_no_further_has_failed_and_the_others_go_on(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAILS_AT", "3")
    space = SPACE.replace("pruning: {first: 1, factor: 2}", "pruning: null")
    run_search(plan(space), 5, 1, 1, None)
    for trial in result():
        failed = trial["settings"]["optimizer.lr"] > 0.5
        assert (trial["state"] == "failed") == failed
        assert recorded(trial["number"]) == list(range(2 if failed else EPOCHS))
        if failed:
            assert trial["reason"].endswith("the last: train.py: error: lower optimizer.lr")
            log = Path(f"search/trial{trial['number']:04d}/train.log").read_text()
            assert log.count("lower optimizer.lr") == 3
    states = {trial["state"] for trial in result()}
    assert states == {"complete", "failed"}, "both kinds were drawn"
    assert "failed: 3 launches came no further" in capsys.readouterr().err


def search_there(folder: Path, environment: dict[str, str]) -> None:
    """Goes on with the search in a folder."""
    os.chdir(folder)
    os.environ.update(environment)
    launcher.TRAIN, searcher.LOOK = STAND_IN, 0.02
    arguments = [str(Path(os.environ["TEMPLATE"]) / "graphs"), "training.epochs=4"]
    search = plan_search(
        Path("space.yaml"), arguments, Path("empty.yaml"), Path("search"), None
    )
    exit_on_bad_input("search", lambda: run_search(search, 5, 1, 1, None))


def start_search(seconds: float) -> Any:
    """Starts a searcher as a process of its own, whose epochs take so long."""
    environment = {**os.environ, "STAND_IN_SECONDS": str(seconds)}
    process = FORKSERVER.Process(target=search_there, args=(Path.cwd(), environment))
    process.start()
    return process


def trainings() -> list[int]:
    """The processes of the stand-in that hold a run folder of this search."""
    owners = [path.name for path in Path("search").glob("trial*/lock/*")]
    return [int(name.rsplit("-", 3)[1]) for name in owners]


def wait_for(what: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
    return found


@pytest.mark.parametrize("storage", get_args(Storage))
def test_kills_lose_nothing_and_do_nothing_twice(plan: Plan, storage: Storage) -> None:
    """The searcher is killed, its training too or not; another one takes over."""
    planning.open_search(plan(SPACE.replace("factor: 2", "factor: 3"), storage))
    rng = random.Random(5)
    for victims in ("searcher", "both", "training"):
        process = start_search(0.15)
        try:
            (training,) = wait_for(trainings)
            time.sleep(rng.uniform(0, 0.4))
            if victims != "searcher":
                kill(training)
            if victims == "training":
                process.join()
                assert process.exitcode == 0
        finally:
            process.kill()
            process.join()
    check_accounts(result(), 5)
    assert not list(Path("search").glob("**/lock/*"))


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:  # it had just ended
        return


def test_a_stopped_search_saves_and_goes_on(plan: Plan) -> None:
    planning.open_search(plan())
    process = start_search(0.3)
    try:
        wait_for(trainings)
        process.terminate()
        process.join()
        assert process.exitcode == os.EX_TEMPFAIL
    finally:
        process.kill()
    assert trainings() == []
    assert (Path("search/trial0000/checkpoints")).is_dir(), "it has saved"
    assert not list(Path("search").glob("searchers/*/lock"))
    run_search(plan(), 5, 1, 1, None)
    check_accounts(result(), 5)


def test_what_another_searcher_sees_to_is_left_to_it(plan: Plan) -> None:
    search = plan()
    planning.open_search(search)
    shared = SharedStudy(search.folder, search.space, "sqlite")
    assert shared.draw(3) == 0
    folder = search.claims / "trial0000"
    folder.mkdir(parents=True)
    with FolderLock() as lock:
        lock.take(folder)
        run_search(search, 3, 1, 1, None)
        states = {trial["number"]: trial["state"] for trial in result()}
        assert states[0] == "running"
        assert states[1] != "running"
        assert not search.run_folder(0).exists()
    run_search(search, 3, 1, 1, None)
    check_accounts(result(), 3)


def test_a_training_that_outlived_its_searcher_is_not_started_again(plan: Plan) -> None:
    planning.open_search(plan())
    process = start_search(0.3)
    try:
        (training,) = wait_for(trainings)
    finally:
        process.kill()
        process.join()
    run_search(plan(), 1, 1, 1, None)
    check_accounts(result(), 1)
    started = Path("search/trial0000/train.log").read_text().split()
    assert started == ["training", str(training)]


def test_it_needs_optuna(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"optuna is not installed; pip install 'bigtrk\[search\]'"):
        run_search(plan(), 1, 1, 1, None)
