"""Trainings whose ranks are forks of one process, which has imported what they need.

    python -m scripts.bench.forked_ranks

It reads a training as a line of JSON, and answers with its exit status, until its input ends.
Imports are most of what a training of a few steps takes: with forks plan_choice.py measures many of
them. A fork's steps, and the peak that it records, are those of a rank that a launcher starts; only
what the modules take is charged to the control group of the process that imported them.
"""

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from bigtrk.train import PROGRAM, main
from scripts.large_events.limited_ranks import GRACE, meeting
from scripts.large_events.memory_limit import MemoryGroup
from scripts.results import CHECKOUT

_PR_SET_PDEATHSIG = 1  # of prctl(2)


class ForkedRanks:
    """The process that ranks are forked from, in a `with` block."""

    def __enter__(self) -> Self:
        # Before its first tensor, as a rank asks for it: a fork cannot any more.
        environment = {**os.environ, "THP_MEM_ALLOC_ENABLE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.forked_ranks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._process.kill()  # and with it its forks
        self._process.communicate()

    def train(self, ranks: int, arguments: Sequence[str], log: Path) -> int:
        """Trains on so many ranks, their output in `log`; returns 0, or the status of the
        first that failed.
        """
        return self._train(arguments, log, [None] * ranks)

    def train_in(self, groups: Sequence[MemoryGroup], settings: Sequence[str], log: Path) -> bool:
        """Trains a rank in each group, as `as_programs` does; says whether all ended well."""
        entries = [str(group.folder / "cgroup.procs") for group in groups]
        return not self._train(settings, log, entries)

    def _train(self, arguments: Sequence[str], log: Path, groups: Sequence[str | None]) -> int:
        log.write_bytes(b"")
        asked = {
            "arguments": [*arguments],
            "log": str(log.resolve()),
            "folder": str(Path.cwd()),
            "groups": [*groups],
            "environments": meeting(len(groups)),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        status: int = json.loads(self._process.stdout.readline())
        return status


def _serve() -> None:
    """Trains what is asked for, one training after another."""
    importlib.import_module("torch._dynamo")  # as the first step of an optimizer does
    for line in sys.stdin:
        print(json.dumps(_fork_ranks(json.loads(line))), flush=True)


def _fork_ranks(asked: dict[str, Any]) -> int:
    """Returns 0, or the status of the first rank that failed; then the others are killed."""
    ranks = {_fork(asked, rank) for rank in range(len(asked["groups"]))}
    failed = 0
    while ranks and not failed:
        ended, status = os.wait()
        ranks.remove(ended)
        failed = os.waitstatus_to_exitcode(status)
    if ranks:
        time.sleep(GRACE)
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)
        os.waitpid(rank, 0)
    return failed


def _fork(asked: dict[str, Any], rank: int) -> int:
    parent = os.getpid()
    return os.fork() or _be_rank(asked, rank, parent)


def _be_rank(asked: dict[str, Any], rank: int, parent: int) -> NoReturn:
    """Trains as one rank, and ends this process."""
    status: Any = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if asked["groups"][rank] is not None:
            Path(asked["groups"][rank]).write_text(str(os.getpid()))
        _redirect(Path(asked["log"]))
        os.environ.update(asked["environments"][rank])
        os.chdir(asked["folder"])
        main(PROGRAM, asked["arguments"])
        status = 0
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def _redirect(log: Path) -> None:
    """Reads nothing any more, and writes to the end of `log`."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_APPEND)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    _serve()
