"""The owner of a lock: a process, identified by more than its number, from whatever host."""

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

ENDED = 0  # in place of a time of start


@dataclass(frozen=True)
class Owner:
    """A process. started: in ticks since the kernel's start, as another process may get the same
    number later. space: the boot of a kernel and the container, within which numbers mean the same.
    """

    host: str
    process: int
    started: int
    space: str

    @staticmethod
    def here() -> "Owner":
        """Returns this process."""
        host, process = platform.node().replace("/", "_"), os.getpid()
        return Owner(host, process, _started(process) or ENDED, _space())

    @staticmethod
    def parse(name: str) -> "Owner":
        """Parses an owner's name; any other raises ValueError."""
        host, process, started, space = name.rsplit("-", 3)
        return Owner(host, int(process), int(started), space)

    @property
    def name(self) -> str:
        return f"{self.host}-{self.process}-{self.started}-{self.space}"

    def has_ended(self) -> bool | None:
        """Says whether the process has ended; None where that cannot be known here: it runs
        elsewhere, or is hidden as another user's.
        """
        if self.space != _space():
            return None
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        found = _started(self.process)
        return None if found is None else found != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _started(process: int) -> int | None:
    """Returns a process's start in ticks since the kernel's, or ENDED; None where it is hidden."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # its name may hold anything
    return ENDED if state in "ZX" else int(fields[18])


def _space() -> str:
    """Returns a short name of the kernel's boot and of this process's container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        facts = f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # it names no file
    except OSError:
        facts = platform.node()
    return hashlib.sha256(facts.encode()).hexdigest()[:12]
