"""Parts that are programs: the tests of GPUs, and a training with the optimizer on the host."""

import subprocess
import sys
import tempfile
from pathlib import Path

from bigtrk.console import say
from bigtrk.records.run_folder import read_run
from scripts.gpu.gpu_parts.extent import Extent, Row
from scripts.results import CHECKOUT

# Without a card those of tests/gpu are skipped, and one of the interpreted ones stands for all.
_DRY_TESTS = ("tests/gpu", "tests/models/test_fused.py::test_the_same_bits_twice")
_TESTS = ("tests/gpu", "tests/models")
_AT_ONCE = 8  # of processes, most of whose time is the compiler's


def tests(extent: Extent) -> Row:
    """Runs the tests marked `gpu`: says whether all passed, and pytest's last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu and not slow"]
    # If it is installed, pytest-benchmark warns of the several processes.
    command += _DRY_TESTS if extent.dry else (*_TESTS, "-n", str(_AT_ONCE), "-p", "no:benchmark")
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode:
        for line in lines:
            say(line)
    return {"passed": not done.returncode, "summary": (lines or [""])[-1]}


def offload(extent: Extent) -> Row:
    """Trains under ZeRO-3 with parameters and optimizer on the host, on one card."""
    with tempfile.TemporaryDirectory(prefix="bigtrk-offload-", dir=extent.work) as name:
        folder = Path(name)
        events = ("--events", "2", "--particles", "50" if extent.dry else "5000")
        bigtrk("simulate", str(folder / "events"), *events)
        bigtrk("build", str(folder / "events"), str(folder / "graphs"))
        width = "8" if extent.dry else "256"
        bigtrk(
            "train",
            f"data.train=[{folder}/graphs]",
            f"run.folder={folder}/run",
            "engine.name=deepspeed",
            "engine.ds_config=zero3_offload",
            f"model.hidden={width}",
            "model.layers=2",
            "training.epochs=2",
        )
        run = read_run(folder / "run")
    last = run.epochs[-1]
    return {
        "hidden": int(width),
        "parameters": run.record.parameters,
        "batch_seconds": last.batch_seconds,
        "peak_bytes": last.peak_memory_bytes,
        "losses": [epoch.train_loss for epoch in run.epochs],
    }


def bigtrk(*arguments: str) -> None:
    """Runs a command of bigtrk; raises CalledProcessError if it failed."""
    command = [sys.executable, "-m", "bigtrk", *arguments]
    subprocess.run(command, check=True, cwd=CHECKOUT)
