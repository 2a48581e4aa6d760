"""A run followed while somebody trains in its folder; nothing is written there.

Its numbers have names, "epoch/validation/auc": so they are called in loggers and `bigtrk watch`.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bigtrk.disk.folder_lock import LOCK, LockWatch, Owner
from bigtrk.disk.json_lines import JsonTail
from bigtrk.errors import InputError
from bigtrk.records.metrics import X_AXES, MetricsRecord, StepRecord
from bigtrk.records.record import read_if_any
from bigtrk.records.run import STALL, RunRecord, StallRecord
from bigtrk.records.run_folder import METRICS, RUN, metrics_record, read_run_record

# What is in the folder of a run that is about to begin: its lock, and what a search's trial prints.
FIRST = (LOCK, "train.log")
RECENT = 20  # steps
MOST = 2**31  # epochs, minutes: as many as a configuration takes


def scalars(record: MetricsRecord) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a record by name, "epoch/validation/auc", without those not known."""
    left_out = {"kind", "routes", "ranks", *X_AXES.values()}
    yield from _numbers(record.kind, record.model_dump(mode="json", exclude=left_out))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{name}/{key}", item)
    elif isinstance(value, int | float):
        yield name, float(value)


class Status(StrEnum):
    """The state of a run. Nobody has begun a run that is `waiting`; a `stopped` one has let its
    folder go before its end, a `lost` one had no time to; `unreadable`: its records cannot be read.
    """

    WAITING = "waiting"
    STARTING = "starting"
    TRAINING = "training"
    FINISHED = "finished"
    STOPPED = "stopped"
    LOST = "lost"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Holder:
    """The process that holds a run's folder. lives: None while not known. silent: s."""

    owner: Owner
    lives: bool | None
    silent: float


@dataclass(frozen=True)
class LiveRun:
    """A run at one moment; values that are not known are None.

    epoch and step count from 1; `epochs` and `steps` are those planned in all. newest: the last
    value of each scalar, by name. seconds_left: at the pace since the process began. idle: seconds
    since the newest record. reason: why it is unreadable.
    """

    folder: Path
    status: Status
    record: RunRecord | None = None
    holder: Holder | None = None
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    newest: Mapping[str, float] = field(default_factory=dict)
    edges_per_second: float | None = None
    step_seconds: float | None = None
    seconds_left: float | None = None
    idle: float | None = None
    stall: StallRecord | None = None
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no more records are to come, unless the run is resumed."""
        return self.status in (Status.FINISHED, Status.STOPPED, Status.LOST)


@dataclass
class History:
    """The records of a run so far, in memory that does not grow with its length. first: the step
    that the process which trains began with. trained: the seconds of training since. recent: the
    last steps.
    """

    first: int = 0
    epoch: int | None = None
    step: int | None = None
    trained: float = 0.0
    newest: dict[str, float] = field(default_factory=dict)
    recent: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, record: MetricsRecord) -> None:
        """Adds the next record."""
        self.epoch = record.epoch
        self.newest.update(scalars(record))
        if isinstance(record, StepRecord):
            self.step = record.step
            self.recent.append(record)
            self.trained += record.seconds if record.step >= self.first else 0.0


class RunFollower:
    """Follows one run, which may come later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock, self._history = LockWatch(folder), History()
        self._tail: JsonTail | None = None
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
        owner, silent = self._lock.owner, self._lock.silence()
        holder = None
        if owner is not None and silent is not None:
            holder = Holder(owner, self._lock.lives(), silent)
        if not self._is_run():
            status = Status.STARTING if holder and holder.lives is not False else Status.WAITING
            return LiveRun(self._folder, status, holder=holder)
        record = self._read_record()
        history = self._read_metrics(record)
        newest = _changed(self._folder / METRICS)
        epochs = _number(record.config, "epochs")
        steps = int(epochs) * record.steps_per_epoch if epochs and record.steps_per_epoch else None
        status = _status(record, history, holder)
        left = self._seconds_left(record, newest, steps) if status is Status.TRAINING else None
        seconds = sum(step.seconds for step in history.recent)
        return LiveRun(
            folder=self._folder,
            status=status,
            record=record,
            holder=holder,
            epoch=None if history.epoch is None else history.epoch + 1,
            epochs=int(epochs) if epochs else None,
            step=None if history.step is None else history.step + 1,
            steps=steps,
            newest=dict(history.newest),
            edges_per_second=sum(s.edges for s in history.recent) / seconds if seconds else None,
            step_seconds=seconds / len(history.recent) if history.recent else None,
            seconds_left=left,
            idle=None if newest is None else max(time.time() - newest, 0.0),
            stall=read_if_any(StallRecord, self._folder / STALL),
        )

    def _is_run(self) -> bool:
        """Whether the run has begun.

        Raises:
            InputError: something else is there.
        """
        if (self._folder / RUN).is_file():
            return True
        if not self._folder.is_dir():
            return False
        found = sorted(path for path in self._folder.iterdir() if path.name[0] != ".")
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
            self._tail = None
        return self._record

    def _read_metrics(self, record: RunRecord) -> History:
        """Reads the new lines, or all where those read before are no longer there."""
        if self._tail is None or self._tail.begins_anew():
            self._tail = JsonTail(self._folder / METRICS)
            self._history = History(record.resumed[-1].step if record.resumed else 0)
        for line in self._tail.new_lines():
            self._history.add(metrics_record(line))
        return self._history

    def _seconds_left(
        self, record: RunRecord, newest: float | None, steps: int | None
    ) -> float | None:
        """Returns the time of the steps to come at the pace of those of this process, or what is
        left of `training.minutes` where that is less.
        """
        history, minutes = self._history, _number(record.config, "minutes")
        left = [] if minutes is None else [60 * minutes - history.trained]
        if steps is not None and history.step is not None and newest is not None:
            # The record is written when the process begins that trains.
            trained, begun = history.step + 1 - history.first, _changed(self._folder / RUN) or 0.0
            pace = (newest - begun) / trained if trained > 0 else 0.0
            left += [pace * (steps - history.step - 1)] if pace > 0 else []
        return max(min(left), 0.0) if left else None


def _changed(path: Path) -> float | None:
    """Returns when a file last changed, in seconds; None where there is none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _status(record: RunRecord, history: History, holder: Holder | None) -> Status:
    if holder is not None and holder.lives is not False:
        # One that is resumed has records of before, and of its end.
        return Status.TRAINING if history.trained else Status.STARTING
    if record.ended is not None:
        return Status.FINISHED
    return Status.STOPPED if holder is None else Status.LOST


def _number(config: Mapping[str, Any], name: str) -> float | None:
    """Returns a number of the configuration's training, which may be anybody's."""
    training = config.get("training")
    value = training.get(name) if isinstance(training, dict) else None
    return value if isinstance(value, int | float) and 0 < value < MOST else None
