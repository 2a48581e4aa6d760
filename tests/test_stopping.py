"""A training that is asked to stop, as a batch system does it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from bigtrk.events.production import simulate_folder
from bigtrk.graphs.build_folder import build_folder
from bigtrk.reports import read_run
from bigtrk.train import __file__ as program


def train(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, program, *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)


def test_sigterm_saves_and_asks_to_be_started_again(tmp_path: Path) -> None:
    simulate_folder(tmp_path / "events", range(3), 20, 0, None)
    build_folder(tmp_path / "events", tmp_path / "graphs")
    run = tmp_path / "run"
    small = ("model.hidden=8", "model.layers=1", "training.epochs=100000")
    training = train(tmp_path, "data.train=[graphs]", f"run.folder={run}", *small)
    while not (run / "metrics.jsonl").exists():
        assert training.poll() is None
        time.sleep(0.05)
    training.send_signal(signal.SIGTERM)
    said = training.communicate(timeout=60)[1].splitlines()[-1]
    done = len(read_run(run).steps)
    assert training.returncode == 75
    assert said == (
        f"bigtrk/train.py: SIGTERM (rank 0): stopped after step {done}, saved; continue with "
        f"--resume {run}"
    )
    resumed = train(tmp_path, "--resume", str(run), "training.minutes=1e-9")
    resumed.communicate(timeout=60)
    assert resumed.returncode == 0
    assert [step.step for step in read_run(run).steps] == list(range(done + 1))
