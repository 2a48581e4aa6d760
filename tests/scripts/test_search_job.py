"""What scripts/slurm/search.sbatch does: a searcher a task, requeued once it has saved."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs import CHECKOUT

# Stands for bigtrk: says what it was called with, and saves when SIGTERM comes.
PROGRAM = """#!/bin/bash
echo "bigtrk $*" >> calls
case "$*" in
    *save*)
        trap 'sleep 0.5; echo saved >> calls; exit 75' TERM
        touch ready
        while true; do sleep 0.1; done ;;
    *fail*) exit 7 ;;
esac
"""
SCONTROL = '#!/bin/bash\necho "scontrol $*" >> calls\n'


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job, in a folder with a checkout and the programs."""
    home, programs = tmp_path / "home", tmp_path / "bin"
    (home / ".venv/bin").mkdir(parents=True)
    (home / ".venv/bin/activate").touch()
    programs.mkdir()
    for name, text in {"bigtrk": PROGRAM, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "BIGTRK_HOME": str(home),
        "SLURM_JOB_ID": "40",
    }


def start(job: dict[str, str], folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    batch = CHECKOUT / "scripts/slurm/search.sbatch"
    return subprocess.Popen(["bash", batch, *arguments], cwd=folder, env=job)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(("word", "status"), [("whole", 0), ("fail", 7)])
def test_a_task_searches_and_ends_as_its_searcher(
    job: dict[str, str], tmp_path: Path, word: str, status: int
) -> None:
    assert start(job, tmp_path, "space.yaml", word, "--trials", "9").wait(timeout=60) == status
    assert calls(tmp_path) == [f"bigtrk search space.yaml {word} --trials 9"]


def test_a_task_saves_and_requeues_itself_before_the_time_limit(
    job: dict[str, str], tmp_path: Path
) -> None:
    task = start(job, tmp_path, "save")
    while not (tmp_path / "ready").exists():
        assert task.poll() is None
        time.sleep(0.02)
    task.send_signal(signal.SIGTERM)
    assert task.wait(timeout=60) == 75
    assert calls(tmp_path)[1:] == ["saved", "scontrol requeue 40"]
