"""Trainings as programs of their own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bigtrk.machine import open_cores
from bigtrk.studies.launch import torchrun_command, torchrun_environment, train_logged

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
import os, pathlib, sys
from bigtrk.studies.launch import train_logged
train_logged([sys.executable, "-c", sys.argv[1]], pathlib.Path("logs/log"), os.environ)
"""


def test_sigterm_is_passed_on_and_the_training_may_save(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOGGED, TRAINING]
    launch = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "started").exists():
            assert launch.poll() is None
            time.sleep(0.05)
        launch.send_signal(signal.SIGTERM)
        assert launch.wait(timeout=300) == 128 + signal.SIGTERM
    finally:
        launch.kill()
    assert (tmp_path / "saved").exists()
    assert launch.communicate()[1] == "bigtrk: ended by SIGTERM\n"


def test_output_that_is_no_text_is_logged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", r"import os; os.write(1, b'on \xff\n')"]
    train_logged(command, tmp_path / "log", os.environ)
    assert (tmp_path / "log").read_text() == "on \\xff\n"


THREADS = """
import torch
from bigtrk.parallel.ranks import configure_process, discover
configure_process(discover())
print(f"threads {torch.get_num_threads()}", flush=True)
"""


def test_ranks_share_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    script, log = tmp_path / "threads.py", tmp_path / "log"
    script.write_text(THREADS)
    train_logged(torchrun_command(2, script, ()), log, torchrun_environment(2))
    assert log.read_text().splitlines() == 2 * [f"threads {max(1, open_cores() // 2)}"]
    assert "OMP_NUM_THREADS" not in torchrun_environment(1), "one rank computes on all of them"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert torchrun_environment(2)["OMP_NUM_THREADS"] == "3", "the user's choice stays"
