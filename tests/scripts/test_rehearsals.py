"""The launch rehearsals, the comparison they end in, and what the SLURM batch files do."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bigtrk.records.metrics import StepRecord
from tests.programs import CHECKOUT, run_shell
from tests.reports.run_folders import run_record, run_writer, step_record

SCRIPTS = CHECKOUT / "scripts"
REHEARSALS = SCRIPTS / "rehearsals"


def compare(folder: Path, other: list[StepRecord], options: str = "") -> tuple[int, str]:
    """Exit status and output of comparing five steps with `other`."""
    write = run_writer(folder)
    write("a", lines=[step_record(step) for step in range(5)])
    write("b", record=run_record(world_size=4), lines=other)
    command = f"python {REHEARSALS}/compare_losses.py a b {options} 2>&1; echo status $?"
    *printed, status = run_shell(command, folder).splitlines()
    return int(status.split()[1]), "\n".join(printed)


@pytest.mark.parametrize(("off", "status"), [(5e-6, 0), (-2e-5, 1)])
def test_losses_agree_within_a_tolerance(tmp_path: Path, off: float, status: int) -> None:
    # Step 3 was trained twice, as after a requeue: the later line counts.
    other = [step_record(step) for step in range(5)]
    other.insert(3, step_record(3, loss=9.0))
    other[5] = step_record(4, loss=0.7 / 5 * (1 + off))
    found, printed = compare(tmp_path, other, "--nodes 2 --seconds 31")
    assert found == status
    assert ("DIFFER" if status else "agree with a (on 1) within 1e-05") in printed
    report = json.loads(printed.splitlines()[-1])
    assert report.pop("max_relative_difference") == pytest.approx(abs(off))
    assert report == {"nodes": 2, "ranks": 4, "steps": 5, "seconds": 31}


# Stands for srun: says what it was called with, and how many cores per task.
SRUN = """#!/bin/bash
echo "srun [${SRUN_CPUS_PER_TASK:-}] $*" >> calls
case "$*" in
    *save*) trap 'exit 75' USR1; touch ready; while true; do sleep 0.1; done ;;
    *start*) exec sleep 60 ;;
    *fail*) exit 7 ;;
esac
"""
# Stands for a requeue, which ends the steps of the job.
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> calls
kill $(pgrep --parent $PPID --full 'sleep 60') 2>/dev/null || true
"""

# Stands for bigtrk: says what it was called with, and saves when SIGTERM comes.
BIGTRK = """#!/bin/bash
echo "bigtrk $*" >> calls
case "$*" in
    *save*)
        trap 'sleep 0.5; echo saved >> calls; exit 75' TERM
        touch ready
        while true; do sleep 0.1; done ;;
    *fail*) exit 7 ;;
esac
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a batch script, in a folder with a checkout and SLURM's commands."""
    home, programs = tmp_path / "home", tmp_path / "bin"
    (home / ".venv/bin").mkdir(parents=True)
    (home / ".venv/bin/activate").touch()
    (home / "scripts").symlink_to(SCRIPTS)
    programs.mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "bigtrk": BIGTRK}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "BIGTRK_HOME": str(home),
        "SLURM_JOB_ID": "7",
        "SLURM_NNODES": "2",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_RESTART_COUNT": "1",
    }


def start(
    job: dict[str, str], folder: Path, *arguments: str, batch: str = "generic.sbatch"
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", SCRIPTS / "slurm" / batch, *arguments], cwd=folder, env=job)


def calls(job: dict[str, str], folder: Path, *arguments: str) -> list[str]:
    """Runs a whole job and returns what it calls."""
    assert start(job, folder, *arguments).wait(timeout=120) == 0
    return called(folder)


def called(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_trains_its_arguments_under_srun(job: dict[str, str], tmp_path: Path) -> None:
    assert calls(job, tmp_path, "my.yaml", "model.hidden=8") == [
        "srun [4] --kill-on-bad-exit=1 bigtrk train my.yaml model.hidden=8 run.folder=runs/7"
    ]


def test_a_task_of_a_series_trains_its_own_run(job: dict[str, str], tmp_path: Path) -> None:
    array = {
        "SLURM_ARRAY_TASK_ID": "3",
        "BIGTRK_ARRAY_RUN": "weak/ranks0002",
        "BIGTRK_ARRAY_SEED": "5",
    }
    (call,) = calls({**job, **array}, tmp_path, "model.hidden=8")
    assert call.endswith(" train model.hidden=8 training.seed=7 run.folder=weak/ranks0002-3")
    (tmp_path / "weak/ranks0002-3/checkpoints").mkdir(parents=True)
    (tmp_path / "weak/ranks0002-3/checkpoints/latest.json").touch()
    assert calls({**job, **array}, tmp_path)[-1].endswith("--resume weak/ranks0002-3")


def test_a_requeued_job_continues_from_its_checkpoint_if_it_has_one(
    job: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "runs/7").mkdir(parents=True)
    assert calls(job, tmp_path, "my.yaml")[-1].endswith(" train my.yaml run.folder=runs/7")
    (left,) = (tmp_path / "runs").iterdir()
    assert left.name == "7.ended-before-its-first-checkpoint-1"
    (tmp_path / "runs/7/checkpoints").mkdir(parents=True)
    (tmp_path / "runs/7/checkpoints/latest.json").touch()
    assert calls(job, tmp_path, "my.yaml")[-1].endswith(" train --resume runs/7")


def test_data_are_staged_on_each_node_and_trained_there(
    job: dict[str, str], tmp_path: Path
) -> None:
    job = {**job, "BIGTRK_STAGE": "graphs in/sectors/", "BIGTRK_LOCAL": "/local"}
    made, copied, trained, removed = calls(job, tmp_path, "my.yaml")
    on_each_node = "srun [] --ntasks=2 --ntasks-per-node=1"
    assert made.startswith(f"{on_each_node} bash -c mkdir -p ")
    assert made.endswith(" stage /local/bigtrk-7")
    assert copied == f"{on_each_node} cp -r graphs in/sectors/ /local/bigtrk-7"
    assert trained.endswith("data.train=[/local/bigtrk-7/graphs,/local/bigtrk-7/sectors]")
    assert removed == f"{on_each_node} rm -rf /local/bigtrk-7"


STAGE = """
set -euo pipefail
source "$1/slurm/train.sh"
on_each_node() { "$@"; }
BIGTRK_STAGE=graphs stage "$2"
"""


def stage(folder: Path) -> subprocess.CompletedProcess[str]:
    """Stage `graphs`, which lies beside `folder`, there, on this node."""
    return subprocess.run(
        ["bash", "-c", STAGE, "bash", SCRIPTS, folder],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_data_are_staged_for_their_user_alone_and_again(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs/event").touch()
    for _ in range(2):
        assert stage(tmp_path / "bigtrk-7").returncode == 0
        assert (tmp_path / "bigtrk-7/graphs/event").exists()
    assert (tmp_path / "bigtrk-7").stat().st_mode & 0o777 == 0o700


# It saves; has not begun.
@pytest.mark.parametrize(
    ("training", "sign", "status"),
    [("save=1", "ready", 75), ("start=1", "calls", 128 + signal.SIGUSR1)],
)
def test_the_signal_requeues_the_job(
    job: dict[str, str], tmp_path: Path, training: str, sign: str, status: int
) -> None:
    batch = start(job, tmp_path, training)
    deadline = time.monotonic() + 300
    while not (tmp_path / sign).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    batch.send_signal(signal.SIGUSR1)
    assert batch.wait(timeout=300) == status
    assert called(tmp_path)[1:] == ["scontrol requeue 7"]


def test_a_task_searches_and_ends_as_its_searcher(job: dict[str, str], tmp_path: Path) -> None:
    task = start(job, tmp_path, "space.yaml", "fail", "--trials", "9", batch="search.sbatch")
    assert task.wait(timeout=300) == 7
    assert called(tmp_path) == ["bigtrk search space.yaml fail --trials 9"]


def test_a_task_saves_and_requeues_itself_before_the_time_limit(
    job: dict[str, str], tmp_path: Path
) -> None:
    task = start(job, tmp_path, "save", batch="search.sbatch")
    while not (tmp_path / "ready").exists():
        assert task.poll() is None
        time.sleep(0.02)
    task.send_signal(signal.SIGTERM)
    assert task.wait(timeout=300) == 75
    assert called(tmp_path)[1:] == ["saved", "scontrol requeue 7"]


def rehearse(command: str, programs: str, folder: Path) -> dict[str, Any]:
    """The last line of a rehearsal, which must leave nothing in its temporary folder."""
    if programs and (os.geteuid() != 0 or not all(map(shutil.which, programs.split()))):
        pytest.skip(f"needs root, and {programs}")
    printed = run_shell(f"TMPDIR=$PWD {REHEARSALS}/{command}", folder, timeout=1500)
    assert list(folder.glob("bigtrk-*")) == []
    last: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "programs", "nodes", "ranks", "steps"),
    [
        ("rehearse_torchrun.sh", "", 2, 2, 6),
        ("rehearse_multinode.sh --nodes 2", "sshd ssh pdsh ip", 2, 2, 6),
        ("rehearse_slurm.sh", "munged slurmctld slurmd sbatch ip", 2, 4, 200),
    ],
)
def test_rehearsal(
    tmp_path: Path, command: str, programs: str, nodes: int, ranks: int, steps: int
) -> None:
    report = rehearse(command, programs, tmp_path)
    assert report["max_relative_difference"] <= 1e-5
    assert (report["nodes"], report["ranks"], report["steps"]) == (nodes, ranks, steps)
