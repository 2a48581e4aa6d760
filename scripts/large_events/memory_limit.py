"""Runs a command under a limit of memory that the kernel enforces: a control group of its own.

    sudo python -m scripts.large_events.memory_limit --gib 16 COMMAND ARGUMENT...

All processes of the command together have so much memory and no swap; where they would need more
the kernel ends one of them. Both versions of control groups are known. The group's peak holds the
file system's cache of what they read and wrote, too, which the kernel takes back before it ends
anything: a program that reads large files without O_DIRECT or posix_fadvise peaks at the limit.
The last line is one JSON object: the exit status, the bytes of the limit and of the peak, and how
many processes were ended for want of memory.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.console import ended_by_sigterm, exit_on_bad_input
from bigtrk.errors import InputError
from bigtrk.machine import CGROUP

# A shell enters the group and becomes the command, so that all of its memory is charged there.
_ENTER = 'echo $$ >"$0" && exec "$@"'
# The kernel frees the memory of an ended process before it leaves its group.
_LEAVE_SECONDS = 30


@dataclass(frozen=True)
class Version:
    """The names of a control group's files in one version of the kernel's interface.

    limit, peak: bytes. without_swap: the files that keep memory from being swapped, and what is
    written to each, None for the limit. kills: the file whose line "oom_kill N" counts ended
    processes.
    """

    limit: str
    peak: str
    without_swap: tuple[tuple[str, int | None], ...]
    kills: str


ONE = Version(
    limit="memory.limit_in_bytes",
    peak="memory.max_usage_in_bytes",
    without_swap=(("memory.swappiness", 0), ("memory.memsw.limit_in_bytes", None)),
    kills="memory.oom_control",
)
TWO = Version(
    limit="memory.max",
    peak="memory.peak",
    without_swap=(("memory.swap.max", 0),),
    kills="memory.events",
)


@dataclass(frozen=True)
class MemoryGroup:
    """A control group for processes that share `limit` bytes of memory."""

    folder: Path
    version: Version
    limit: int

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command in the group. options: those of Popen."""
        enter = ["sh", "-c", _ENTER, str(self.folder / "cgroup.procs")]
        return subprocess.Popen([*enter, *command], **options)

    def run(self, command: Sequence[str], **options: Any) -> int:
        """Runs a command in the group, `start`; returns its exit status."""
        return self.start(command, **options).wait()

    def peak(self) -> int:
        """Returns the largest number of bytes that were charged to the group."""
        return int((self.folder / self.version.peak).read_text())

    def kills(self) -> int:
        """Counts the processes that were ended because the limit was reached."""
        lines = (self.folder / self.version.kills).read_text().splitlines()
        counts = dict(line.split() for line in lines)
        return int(counts.get("oom_kill", 0))

    def limit_memory(self) -> None:
        """Sets the limit, for memory and for memory with swap."""
        (self.folder / self.version.limit).write_text(str(self.limit))
        for name, value in self.version.without_swap:
            file = self.folder / name
            if file.exists():  # absent where the kernel does not count swap
                file.write_text(str(self.limit if value is None else value))

    def end_processes(self) -> None:
        """Ends what still runs in the group, and waits until it is gone."""
        until = time.monotonic() + _LEAVE_SECONDS
        while (left := self._processes()) and time.monotonic() < until:
            for process in left:
                _kill(process)
            time.sleep(0.02)

    def _processes(self) -> list[int]:
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]


@contextmanager
def memory_group(limit: int, root: Path = CGROUP) -> Iterator[MemoryGroup]:
    """Makes a group whose processes may take `limit` bytes together; ends them and removes it.
    Raises InputError if no control group can be made here.
    """
    parent, version = find_version(root)
    group = MemoryGroup(parent / f"bigtrk-{os.getpid()}-{time.monotonic_ns()}", version, limit)
    try:
        group.folder.mkdir()
        group.limit_memory()
    except OSError as error:
        _remove(group.folder)
        raise _unable(parent, error.strerror or str(error)) from None
    try:
        yield group
    finally:
        group.end_processes()
        _remove(group.folder)


def find_version(root: Path) -> tuple[Path, Version]:
    """Finds the folder that groups with a limit of memory are made in, and their version; raises
    InputError if there is none, or this process may not make one.
    """
    if (root / "memory" / ONE.limit).exists():
        return root / "memory", ONE
    controllers = root / "cgroup.controllers"
    if not controllers.exists() or "memory" not in controllers.read_text().split():
        raise _unable(root, "the kernel offers no control groups for memory there")
    handed_down = root / "cgroup.subtree_control"
    if "memory" not in handed_down.read_text().split():
        try:
            handed_down.write_text("+memory")
        except OSError as error:
            raise _unable(handed_down, error.strerror or str(error)) from None
    return root, TWO


def _unable(place: Path, why: str) -> InputError:
    return InputError(
        f"{place}: cannot limit memory by a control group ({why}); run this as root, on a host or "
        f"in a container that may make control groups"
    )


def _remove(folder: Path) -> None:
    if folder.exists():
        folder.rmdir()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def run_limited(gib: float, command: Sequence[str]) -> dict[str, int]:
    """Runs a command in at most `gib` GiB; returns what the last line says."""
    limit = int(gib * 2**30)
    with ended_by_sigterm(), memory_group(limit) as group:
        status = group.run(command)
        return {
            "status": status,
            "limit_bytes": limit,
            "peak_bytes": group.peak(),
            "out_of_memory": group.kills(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, required=True, help="memory of all its processes")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ARGUMENT...")
    arguments = parser.parse_args()
    if not arguments.command or arguments.gib <= 0:
        parser.error("give --gib above 0 and a command")
    found = run_limited(arguments.gib, arguments.command)
    print(json.dumps(found), flush=True)
    sys.exit(found["status"])


if __name__ == "__main__":
    exit_on_bad_input("memory_limit.py", main)
