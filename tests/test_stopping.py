"""A training that is asked to stop, as a batch system does it, or killed; one started twice."""

import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bigtrk.disk.folder_lock import LOCK
from bigtrk.events.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.reports import read_run
from bigtrk.train import __file__ as program
from tests.programs import run_here

SMALL = ("model.hidden=8", "model.layers=1", "training.epochs=100000")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    simulate_folder(folder / "events", range(3), 20, 0, None)
    build_folder(folder / "events", folder / "graphs")
    return folder / "graphs"


def train(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, program, *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def started(graphs: Path, run: Path, there: str) -> Iterator[subprocess.Popen[str]]:
    """A training without end, once it has written a file; it is killed after the block."""
    with train(run.parent, f"data.train=[{graphs}]", f"run.folder={run}", *SMALL) as training:
        try:
            while not (run / there).exists():
                assert training.poll() is None
                time.sleep(0.05)
            yield training
        finally:
            training.kill()


def test_sigterm_saves_and_asks_to_be_started_again(tmp_path: Path, graphs: Path) -> None:
    run = tmp_path / "run"
    with started(graphs, run, "metrics.jsonl") as training:
        training.send_signal(signal.SIGTERM)
        said = training.communicate(timeout=60)[1].splitlines()[-1]
    done = len(read_run(run).steps)
    assert training.returncode == 75
    assert said == (
        f"bigtrk/train.py: SIGTERM (rank 0): stopped after step {done}, saved; continue with "
        f"--resume {run}"
    )
    assert not (run / LOCK).exists()
    resumed = train(tmp_path, "--resume", str(run), "training.minutes=1e-9")
    resumed.communicate(timeout=60)
    assert resumed.returncode == 0
    assert [step.step for step in read_run(run).steps] == list(range(done + 1))


def test_a_run_is_resumed_once_its_process_is_gone(
    tmp_path: Path,
    graphs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    resume = ["bigtrk/train.py", "--resume", str(run), "training.minutes=1e-9"]
    with started(graphs, run, "checkpoints/latest.json") as training:
        who = f"process {training.pid} on {platform.node()}"
        status, _, errors = run_here(resume, monkeypatch, capsys)
        assert training.poll() is None
    assert status == 2
    assert errors == (
        f"bigtrk/train.py: error: {run}: {who} is writing there; wait until it has ended, or end "
        f"it, or choose another folder\n"
    )
    status, said, _ = run_here(resume, monkeypatch, capsys)
    assert status == 0
    assert f"{run}: {who} is gone; its lock is taken over\n" in said
    steps = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"step",' in line]
    assert len(steps) == len(read_run(run).steps)
