"""Optuna's journal as a file that survives the death of whoever writes in it."""

import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

_BLOCK = 1 << 16  # bytes


class _HeldAlready(JournalFileOpenLock):
    """Stands for the search's own lock, under which all is read and written. That one finds dead
    owners; Optuna's takes a lock away after half a minute, from the living, too.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


class Journal(JournalFileBackend):
    """A journal whose users hold the lock of its folder, so that no two of them write at once.

    A writer that was killed leaves half a line: the next one would make a line of it that nobody
    can read. It is cut off first, since what it says was not done.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), lock_obj=_HeldAlready(str(path)))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends entries after the last whole one."""
        cut_half_line(self._path)
        super().append_logs(logs)


def cut_half_line(path: Path) -> None:
    """Cuts off what follows the last line break of a file."""
    with path.open("rb+") as handle:
        end = whole = handle.seek(0, os.SEEK_END)
        while whole:
            start = max(0, whole - _BLOCK)
            handle.seek(start)
            at = handle.read(whole - start).rfind(b"\n")
            if at >= 0:
                whole = start + at + 1
                break
            whole = start
        if whole < end:
            handle.truncate(whole)
