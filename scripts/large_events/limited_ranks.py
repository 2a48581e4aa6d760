"""Trainings on several ranks of this host, within a limit of memory that the kernel enforces."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bigtrk.errors import InputError
from bigtrk.records.run_folder import read_run
from bigtrk.studies.launch import ended_by_sigterm, tail
from scripts.large_events.memory_limit import MemoryGroup, memory_group
from scripts.results import CHECKOUT

GRACE = 1.0  # s that the others have once a rank has failed: it is rank 0 that says why
_LOOK = 0.1  # s between two looks at the ranks


@dataclass(frozen=True)
class Outcome:
    """Tells what became of a training. seconds: of the median step after the first, None where
    there is none. peak_bytes: of the rank with most. out_of_memory: the kernel ended a rank.
    """

    seconds: float | None
    peak_bytes: int
    out_of_memory: bool


# Trains a rank in each group, with these settings, and writes what they say to a log; says whether
# all ended well.
Start = Callable[[Sequence[MemoryGroup], Sequence[str], Path], bool]


def as_programs(groups: Sequence[MemoryGroup], settings: Sequence[str], log: Path) -> bool:
    """Starts the ranks side by side, as srun does: a launcher would take memory of its own."""
    program = [sys.executable, str(CHECKOUT / "bigtrk" / "train.py"), *settings]
    with log.open("w") as written:
        processes = [
            group.start(
                program, env={**os.environ, **own}, stdout=written, stderr=subprocess.STDOUT
            )
            for group, own in zip(groups, meeting(len(groups)), strict=True)
        ]
    ended = _ended(processes)
    if not ended:
        time.sleep(GRACE)
    for process in processes:
        process.kill()
        process.wait()
    return ended


def train_within(
    limit: int, ranks: int, settings: Sequence[str], run: Path, start: Start = as_programs
) -> Outcome:
    """Trains on so many ranks that have `limit` bytes each; their output goes to RUN.log.

    Raises:
        InputError: the training failed for another reason than memory; or no limit can be set here.
    """
    log = run.with_name(f"{run.name}.log")
    with ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        groups = [stack.enter_context(memory_group(limit)) for _ in range(ranks)]
        ended = start(groups, [*settings, f"run.folder={run}"], log)
        peak = max(group.peak() for group in groups)
        killed = any(group.kills() for group in groups)
    if not ended and not killed:
        raise InputError(f"{log}: a training failed: {' / '.join(tail(log)[-2:])}")
    return Outcome(None if killed else _seconds(run), peak, killed)


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Waits until all ranks have ended well, or one has not: others would wait for it in vain."""
    while True:
        statuses = [process.poll() for process in processes]
        if any(statuses) or None not in statuses:
            return not any(statuses)
        time.sleep(_LOOK)


def _seconds(run: Path) -> float | None:
    steps = read_run(run).steps[1:]
    return median(step.seconds for step in steps) if steps else None


def meeting(ranks: int) -> list[dict[str, str]]:
    """Returns the variables by which each of so many ranks of this host finds the others."""
    common = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
