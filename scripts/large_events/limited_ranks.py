"""Trainings on several ranks of this host, within a limit of memory that the kernel enforces."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk.errors import InputError
from bigtrk.records.run_folder import read_run
from bigtrk.studies.launch import ended_by_sigterm, tail
from scripts.large_events.memory_limit import memory_group
from scripts.results import CHECKOUT

# The ranks are started side by side, as srun does: a launcher would take memory of its own. Once
# one has failed, the others wait for it in vain and end with their group.
_START = """
for rank in $(seq 0 $((WORLD_SIZE - 1))); do RANK=$rank LOCAL_RANK=$rank "$@" & done
for rank in $(seq 0 $((WORLD_SIZE - 1))); do wait -n || exit 1; done
"""


@dataclass(frozen=True)
class Outcome:
    """Tells what became of a training. seconds: of the median step after the first, None where
    there is none. peak_bytes: of all ranks together. out_of_memory: the kernel ended a rank.
    """

    seconds: float | None
    peak_bytes: int
    out_of_memory: bool


def train_within(limit: int, ranks: int, settings: Sequence[str], run: Path) -> Outcome:
    """Trains on so many ranks that together have `limit` bytes; their output goes to RUN.log.

    Raises:
        InputError: the training failed for another reason than memory; or no limit can be set here.
    """
    program = [sys.executable, str(CHECKOUT / "bigtrk" / "train.py"), *settings]
    log = run.with_name(f"{run.name}.log")
    with ended_by_sigterm(), memory_group(limit) as group, log.open("w") as written:
        status = group.run(
            ["bash", "-c", _START, "bash", *program, f"run.folder={run}"],
            env={**os.environ, **_meeting(ranks)},
            stdout=written,
            stderr=subprocess.STDOUT,
        )
        peak, killed = group.peak(), group.kills() > 0
    if status and not killed:
        raise InputError(f"{log}: a training failed: {' / '.join(tail(log)[-2:])}")
    return Outcome(None if killed else _seconds(run), peak, killed)


def _seconds(run: Path) -> float | None:
    steps = read_run(run).steps[1:]
    return median(step.seconds for step in steps) if steps else None


def _meeting(ranks: int) -> dict[str, Any]:
    return {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
