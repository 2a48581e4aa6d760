"""The state of a run while it trains, made of what its folder holds and of nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bigtrk.disk.lock_owner import Owner
from bigtrk.records.live.history import History
from bigtrk.records.live.stall import StallRecord
from bigtrk.records.run import RunRecord


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


MOST = 2**31  # epochs, minutes: as many as a configuration takes
OVER = (Status.FINISHED, Status.STOPPED, Status.LOST)


@dataclass(frozen=True)
class Holder:
    """The process that holds a run's folder. lives: None while that is not known. silent: seconds
    since its last sign of life.
    """

    owner: Owner
    lives: bool | None
    silent: float


@dataclass(frozen=True)
class Times:
    """Seconds of the file system's clock: when the run's record was written, which is when the
    process began that trains, and its newest line; and those of this host's clock.
    """

    begun: float
    newest: float | None
    now: float


@dataclass(frozen=True)
class LiveRun:
    """A run at one moment; values that are not known are None.

    epoch and step count from 1; `epochs` and `steps` are those planned in all. newest: the last
    value of each scalar, by name. curves: those asked for, by name, in points (place, value).
    `seconds_left` is the time to the end at the pace since the process began, validation and
    checkpoints included. idle: seconds since the newest record. reason: of an unreadable one.
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
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    edges_per_second: float | None = None
    step_seconds: float | None = None
    seconds_left: float | None = None
    idle: float | None = None
    stall: StallRecord | None = None
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Says whether no more records are to come, unless the run is resumed."""
        return self.status in OVER


def live_run(
    folder: Path,
    record: RunRecord,
    history: History,
    holder: Holder | None,
    times: Times,
    stall: StallRecord | None,
) -> LiveRun:
    """Makes the state of a run that has a record."""
    epochs = _number(record.config, "epochs")
    per_epoch = record.steps_per_epoch
    steps = int(epochs) * per_epoch if epochs and per_epoch else None
    status = _status(record, history, holder)
    recent = [step.seconds for step in history.recent]
    return LiveRun(
        folder=folder,
        status=status,
        record=record,
        holder=holder,
        epoch=history.epoch + 1 if history.count else None,
        epochs=int(epochs) if epochs else None,
        step=None if history.step is None else history.step + 1,
        steps=steps,
        newest=dict(history.newest),
        curves={name: curve.points() for name, curve in history.curves.items()},
        edges_per_second=history.edges_per_second,
        step_seconds=sum(recent) / len(recent) if recent else None,
        seconds_left=_seconds_left(record, history, times, steps)
        if status is Status.TRAINING
        else None,
        idle=None if times.newest is None else max(times.now - times.newest, 0.0),
        stall=stall,
    )


def _status(record: RunRecord, history: History, holder: Holder | None) -> Status:
    if holder is not None and holder.lives is not False:
        # One that is resumed has records of before, and of its end.
        return Status.TRAINING if history.trained else Status.STARTING
    if record.ended is not None:
        return Status.FINISHED
    return Status.STOPPED if holder is None else Status.LOST


def _seconds_left(
    record: RunRecord, history: History, times: Times, steps: int | None
) -> float | None:
    """Returns the time of the steps to come at the pace of those of this process, or what is left
    of `training.minutes` where that is less.
    """
    minutes = _number(record.config, "minutes")
    left = [] if minutes is None else [60 * minutes - history.trained]
    if steps is not None and history.step is not None and times.newest is not None:
        trained = history.step + 1 - history.first
        pace = (times.newest - times.begun) / trained if trained > 0 else 0.0
        left += [pace * (steps - history.step - 1)] if pace > 0 else []
    return max(min(left), 0.0) if left else None


def _number(config: Mapping[str, Any], name: str) -> float | None:
    """Returns a number of the configuration's training, which may be anybody's."""
    training = config.get("training")
    value = training.get(name) if isinstance(training, dict) else None
    return value if isinstance(value, int | float) and 0 < value < MOST else None
