"""Follows the folder of a run while somebody trains there, and writes nothing."""

import time
from collections.abc import Container
from pathlib import Path

from bigtrk.disk.folder_lock import LOCK, LockWatch
from bigtrk.disk.json_tail import JsonTail
from bigtrk.errors import InputError
from bigtrk.records.live.history import History
from bigtrk.records.live.stall import read_stall
from bigtrk.records.live.state import Holder, LiveRun, Status, Times, live_run
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import METRICS, RUN, metrics_record, read_run_record

# What is in the folder of a run that is about to begin: its lock, and what a search's trial prints.
FIRST = (LOCK, "train.log")


class RunFollower:
    """Follows one run, which may come later. names: of the scalars whose curves are kept."""

    def __init__(self, folder: Path, names: Container[str]) -> None:
        self._folder, self._names = folder, names
        self._lock, self._tail = LockWatch(folder), JsonTail(folder / METRICS)
        self._history = History(names)
        self._record: RunRecord | None = None
        self._version: tuple[int, ...] = ()

    def look(self) -> LiveRun:
        """Reads what is new, and returns the state of the run.

        Raises:
            InputError: the folder is that of something else, or a record is broken.
        """
        if self._folder.is_file():
            raise InputError(
                f"{self._folder}: is a file; name the folder of a run, such as runs/0001"
            )
        # The lock comes before the records: who releases it has written all of them.
        holder = self._holder()
        if not self._is_run():
            status = Status.STARTING if holder and holder.lives is not False else Status.WAITING
            return LiveRun(self._folder, status, holder=holder)
        record = self._read_record()
        self._read_metrics()
        times = Times(
            begun=_changed(self._folder / RUN) or 0.0,
            newest=_changed(self._folder / METRICS),
            now=time.time(),
        )
        stall = read_stall(self._folder)
        return live_run(self._folder, record, self._history, holder, times, stall)

    def _is_run(self) -> bool:
        """Says whether the run has begun.

        Raises:
            InputError: something else is there.
        """
        if (self._folder / RUN).is_file():
            return True
        if not self._folder.is_dir():
            return False
        found = [path for path in sorted(self._folder.iterdir()) if path.name[0] != "."]
        if any(path.name not in FIRST for path in found):
            within = next((path for path in found if (path / RUN).is_file()), "runs/0001")
            raise InputError(
                f"{self._folder}: holds no {RUN}, so it is not the folder of a training run; name "
                f"one that is, such as {within}, or one that is not there yet"
            )
        return False

    def _read_record(self) -> RunRecord:
        """Reads the run's record again once it has changed, and then all metrics with it."""
        found = (self._folder / RUN).stat()
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._record is None or version != self._version:
            self._record, self._version = read_run_record(self._folder), version
            self._begin_anew()
            self._tail = JsonTail(self._folder / METRICS)
        return self._record

    def _read_metrics(self) -> None:
        if self._tail.begins_anew():
            self._begin_anew()
        for line in self._tail.new_lines():
            self._history.add(metrics_record(line))

    def _begin_anew(self) -> None:
        assert self._record is not None, "its record is read first"
        resumed = self._record.resumed
        self._history = History(self._names, resumed[-1].step if resumed else 0)

    def _holder(self) -> Holder | None:
        owner, silent = self._lock.owner, self._lock.silence()
        if owner is None or silent is None:
            return None
        return Holder(owner, self._lock.lives(), silent)


def _changed(path: Path) -> float | None:
    """Returns when a file last changed, in seconds; None where there is none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
