"""Searches whose trainings Ray places, with a stand-in for Ray: it decides nothing."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bigtrk.disk.lock_owner import Owner
from bigtrk.errors import InputError, StoppedError
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.ray_places import RayPlace, RayProcess, Share, ray_places
from bigtrk.studies.search.run_search import run_search
from tests.programs import run_here
from tests.studies.search.stand_in_ray import StandInRay
from tests.studies.search.stand_in_searches import (
    EPOCHS,
    check_accounts,
    result,
    trainings,
    wait_for,
)

SPACE = """\
metric: train_loss
space:
  optimizer.lr: {low: 0.0001, high: 1.0}
"""
UNPRUNED = SPACE + "sampler: random\npruning: null\n"
POPULATION = SPACE + "population: {every: 2}\n"
Plan = Callable[..., Search]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StandInRay:
    ray = StandInRay([{"CPU": 1.0}, {"CPU": 1.0}])
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def awaited(process: RayProcess) -> None:
    wait_for(lambda: process.poll() is not None)


def test_a_population_is_decided_as_on_one_host(
    plan: Plan, cluster: StandInRay, capsys: pytest.CaptureFixture[str]
) -> None:
    run_search(plan(POPULATION, 2), 2, 1, 1, None)
    alone = result()
    assert any(one["source"] is not None for one in alone["rounds"])
    Path("search").rename("alone")
    run_search(plan(POPULATION, 2), 2, 2, 1, None, Share())
    assert result() == alone
    assert cluster.most_at_once == 2
    assert len(cluster.tasks) == 2 * EPOCHS // 2
    told = "Ray has 2 cores and 0 GPUs on 2 hosts; a trial gets 1 core and 0 GPUs\n"
    assert told in capsys.readouterr().out


def test_the_command_draws_as_on_one_host(
    plan: Plan,
    stand_in_data: Path,
    cluster: StandInRay,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.hosts = [{"CPU": 3.0}]
    run_search(plan(UNPRUNED, 3), 3, 1, 1, None)
    alone = result()
    command = [
        "bigtrk", "search", "space.yaml", "empty.yaml", str(stand_in_data / "graphs"),
        f"training.epochs={EPOCHS}", "--trials", "3", "--out", "search2", "--at-once", "2",
        "--executor", "ray", "--cpus", "2", "--gpus", "0",
    ]  # fmt: skip
    status, _, error = run_here(command, monkeypatch, capsys)
    assert status == 0, error
    Path("search").rename("alone")
    Path("search2").rename("search")
    assert result() == alone
    assert cluster.most_at_once == 1, "a trial has two of three cores"


def test_a_signal_ends_trainings_on_other_hosts(
    plan: Plan, cluster: StandInRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_SECONDS", "0.3")
    monkeypatch.setattr(Owner, "has_ended", lambda _: None)  # as processes elsewhere look

    def interrupt() -> None:
        wait_for(lambda: len(trainings()) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(StoppedError, match="SIGTERM"):
        run_search(plan(UNPRUNED, 3), 3, 3, 1, None, Share())
    thread.join()
    assert trainings() == []
    for number in (0, 1):
        assert list(Path(f"search/trial{number:04d}/checkpoints").glob("step-*")), "it has saved"
    assert not Path("search/trial0002/train.log").exists(), "it waited for a host"
    assert len(cluster.tasks) == 3
    run_search(plan(UNPRUNED, 3), 3, 2, 1, None, Share())
    check_accounts(3)


@pytest.mark.parametrize(
    ("ranks", "share", "threads", "devices"),
    [
        (1, Share(), "1,1", "0"),
        (2, Share(), "1,1", "0,1"),
        (2, Share(cpus=7), "3", "0,1"),
        (1, Share(cpus=6, gpus=0), "6", ""),
    ],
)
def test_a_training_has_the_cores_and_gpus_that_ray_gave(
    cluster: StandInRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranks: int,
    share: Share,
    threads: str,
    devices: str,
) -> None:
    cluster.hosts = [{"CPU": 2.0}, {"CPU": 8.0, "GPU": 2.0}]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")  # the searcher's own
    (place,) = ray_places(1, ranks, share)
    told = ["sh", "-c", 'echo "$WORD|$OMP_NUM_THREADS|$CUDA_VISIBLE_DEVICES|$(pwd)"']
    awaited(place.start(told, {**os.environ, "WORD": "mine"}, Path("log")))
    assert Path("log").read_text() == f"mine|{threads}|{devices}|{tmp_path}\n"


def test_places_differ(cluster: StandInRay) -> None:
    assert len(set(ray_places(3, 1, Share()))) == 3
    assert cluster.is_initialized()


def test_a_host_that_does_not_see_the_folder_is_named_once(
    cluster: StandInRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    process = RayPlace(0, 1, 1, 0).start(["true"], {}, Path("elsewhere/train.log"))
    said = r"cannot start a training there \(.*elsewhere/train.log.*same path on all hosts"
    with pytest.raises(InputError, match=said):
        awaited(process)
    assert process.poll() == 0, "so that the searcher can leave"
    assert len(cluster.tasks) == 1


COLOURED = """\x1b[36mray::train_there()\x1b[39m (pid=7)
RuntimeError: The remote function failed to import on the worker:
ModuleNotFoundError: No module named 'bigtrk'
at last"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("The worker died\nunexpectedly.", "The worker died unexpectedly."),
        (COLOURED, "ModuleNotFoundError: No module named 'bigtrk'"),
    ],
)
def test_why_ray_ended_a_training_is_in_its_log(
    cluster: StandInRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.said = said
    process = RayPlace(0, 1, 1, 0).start(["sleep", "1"], dict(os.environ), Path("train.log"))
    assert process.poll() is None
    wait_for(Path("train.log").exists)
    time.sleep(0.1)
    cluster.tasks[0].process.kill()
    awaited(process)
    log = Path("train.log").read_text()
    assert log.endswith(f"\nerror: Ray ended it: {told}\n")
    assert "\x1b" not in log


@pytest.mark.usefixtures("cluster")
def test_what_ray_cannot_give_is_said(
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    search = plan(UNPRUNED, 1)
    too_large = "a trial is to have 2 cores and 0 GPUs, which none of the hosts of the cluster has"
    with pytest.raises(InputError, match=too_large):
        run_search(search, 1, 1, 2, None, Share())
    with pytest.raises(InputError, match="1 core and 1 GPU, which none"):
        run_search(search, 1, 1, 1, None, Share(gpus=1))
    monkeypatch.setitem(sys.modules, "ray", StandInRay([]))
    with pytest.raises(InputError, match=r"no cluster is joined \(Could not find any running Ray"):
        run_search(search, 1, 1, 1, None, Share())
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"ray is not installed; pip install 'bigtrk\[ray\]'"):
        run_search(search, 1, 1, 1, None, Share())
    assert not search.folder.exists()
    command = ["bigtrk", "search", "space.yaml", "--cpus", "2"]
    status, _, error = run_here(command, monkeypatch, capsys)
    assert status == 2
    assert "--cpus, --gpus: are of --executor ray" in error
