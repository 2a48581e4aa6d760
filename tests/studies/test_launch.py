"""Trainings as programs of their own."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Stands for a training, which saves when SIGTERM comes.
TRAINING = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(1)
    pathlib.Path("saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
pathlib.Path("started").touch()
time.sleep(300)
"""
LOGGED = """
import pathlib, sys
from bigtrk.studies.launch import train_logged
train_logged([sys.executable, "-c", sys.argv[1]], pathlib.Path("logs/log"))
"""
QUIET = """
import pathlib, sys
from bigtrk.studies.launch import ended_by_sigterm, train_quietly
with ended_by_sigterm():
    train_quietly([sys.executable, "-c", sys.argv[1]], pathlib.Path("log"))
"""


@pytest.mark.parametrize("program", [LOGGED, QUIET])
def test_sigterm_is_passed_on_and_the_training_may_save(tmp_path: Path, program: str) -> None:
    launch = subprocess.Popen([sys.executable, "-c", program, TRAINING], cwd=tmp_path)
    try:
        while not (tmp_path / "started").exists():
            assert launch.poll() is None
            time.sleep(0.05)
        launch.send_signal(signal.SIGTERM)
        assert launch.wait(timeout=300) == 128 + signal.SIGTERM
    finally:
        launch.kill()
    assert (tmp_path / "saved").exists()
