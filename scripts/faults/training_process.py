"""A training by torchrun on this host, and all processes that it started, to be disturbed."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from uuid import uuid4

from bigtrk.studies.launch import torchrun_command, torchrun_environment

RANKS = 2
POLL = 0.001  # s
MARK = "BIGTRK_LAUNCHED"


class Launch:
    """A launch. Its output goes to `log`; each of its processes carries a mark in its environment,
    and is killed when the block ends.
    """

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str],
        log: Path,
        ranks: int = RANKS,
        **environment: str,
    ) -> None:
        self._mark = uuid4().hex
        with log.open("w") as written:
            self._launcher = subprocess.Popen(
                torchrun_command(ranks, script, arguments),
                env={**torchrun_environment(ranks), **environment, MARK: self._mark},
                stdout=written,
                stderr=subprocess.STDOUT,
            )

    @property
    def launcher(self) -> list[int]:
        return [self._launcher.pid]

    @property
    def ended(self) -> bool:
        """Whether the launcher has ended; its ranks may not have."""
        return self._launcher.poll() is not None

    @property
    def failed(self) -> bool:
        """Whether a launcher that ended failed."""
        return self._launcher.wait() != 0

    def processes(self) -> list[int]:
        """Lists all processes that live, the launcher too, whoever their parent is by now."""
        self._launcher.poll()
        return carrying(f"{MARK}={self._mark}")

    def rank(self, rank: int) -> list[int]:
        """Lists the process of a rank, and what it started."""
        return carrying(f"{MARK}={self._mark}", f"RANK={rank}")

    def wait(self, seconds: float) -> bool:
        """Whether all ended before the seconds did."""
        end = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still lives."""
        send(self.processes(), signal.SIGKILL)
        self._launcher.wait()


def carrying(*variables: str) -> list[int]:
    """Lists the processes whose environment has these, each as NAME=value."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it ended, or is another user's
            continue
        if set(variables) <= set(environment):
            found.append(int(path.parent.name))
    return found


def send(processes: Sequence[int], number: signal.Signals) -> None:
    """Sends a signal to those that still live."""
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
