"""Follows a run while it trains, without writing to its folder."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bigtrk.disk.folder_lock import LOCK, LockWatch, Owner
from bigtrk.disk.json_lines import JsonTail
from bigtrk.errors import InputError, shell_word
from bigtrk.records.metrics import X_AXES, MetricsRecord, StepRecord
from bigtrk.records.pipeline import check_is_run
from bigtrk.records.record import read_if_any
from bigtrk.records.run import STALL, RunRecord, StallRecord
from bigtrk.records.run_folder import METRICS, RUN, metrics_record, read_run_record
from bigtrk.records.studies import is_search

# A run that is about to begin has its lock, and what a search's trial prints.
FIRST = (LOCK, "train.log")
RECENT = 20  # steps
MOST = 2**31  # epochs: as many as a configuration takes


def scalars(record: MetricsRecord) -> Iterator[tuple[str, float]]:
    """Yields the known numbers of a record, each with a name such as "epoch/validation/auc"."""
    left_out = {"kind", "routes", "ranks", *X_AXES.values()}
    yield from _numbers(record.kind, record.model_dump(mode="json", exclude=left_out))


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{name}/{key}", item)
    elif isinstance(value, int | float):
        yield name, float(value)


class Status(StrEnum):
    """The state of a run. stopped: it ended early and released its folder; lost: it was killed."""

    WAITING = "waiting"
    STARTING = "starting"
    TRAINING = "training"
    FINISHED = "finished"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True)
class LiveRun:
    """A run at one moment; unknown values are None. owner: the process that holds its folder;
    silent: seconds since the owner's last sign of life. epoch, step: the last, from 1; epochs,
    steps: planned. newest: the latest scalars by name. idle: seconds since the last record.
    """

    folder: Path
    status: Status
    record: RunRecord | None = None
    owner: Owner | None = None
    silent: float = 0.0
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    newest: Mapping[str, float] = field(default_factory=dict)
    edges_per_second: float | None = None
    step_seconds: float | None = None
    idle: float | None = None
    stall: StallRecord | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run writes no more records, unless it is resumed."""
        return self.status in (Status.FINISHED, Status.STOPPED, Status.LOST)


class RunFollower:
    """Follows one run, which may start later, with memory independent of its length."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, LockWatch(folder)
        self._tail = JsonTail(folder / METRICS)
        self._begin()

    def _begin(self) -> None:
        self._epoch: int | None = None
        self._recent = deque[StepRecord](maxlen=RECENT)
        self._newest: dict[str, float] = {}

    def look(self) -> LiveRun:
        """Reads new records and returns the run's state; InputError if it is no run, or broken."""
        is_run = (self._folder / RUN).is_file()
        others = (path for path in self._folder.glob("[!.]*") if path.name not in FIRST)
        if is_search(self._folder):
            report = f"bigtrk report {shell_word(self._folder)}"
            raise InputError(f"{self._folder}: holds a search; show it by: {report}")
        if not is_run and (self._folder.is_file() or any(others)):
            check_is_run(self._folder)
        # The lock is read before the records: an owner writes all of them before releasing it.
        owner, silent = self._lock.owner, self._lock.silence()
        is_held = owner is not None and silent is not None and self._lock.lives() is not False
        if not is_run:
            status = Status.STARTING if is_held else Status.WAITING
            return LiveRun(self._folder, status, owner=owner, silent=silent or 0.0)
        record = read_run_record(self._folder)
        if self._tail.begins_anew():
            self._begin()
        for line in self._tail.new_lines():
            newest = metrics_record(line)
            self._epoch = newest.epoch
            self._newest.update(scalars(newest))
            if isinstance(newest, StepRecord):
                self._recent.append(newest)
        # A resumed run still has records from before, among them its earlier end.
        first = record.resumed[-1].step if record.resumed else 0
        if is_held:
            is_trained = bool(self._recent) and self._recent[-1].step >= first
            status = Status.TRAINING if is_trained else Status.STARTING
        elif record.ended is not None:
            status = Status.FINISHED
        else:
            status = Status.STOPPED if owner is None else Status.LOST
        metrics, planned = self._folder / METRICS, record.section("training").get("epochs")
        epochs = planned if isinstance(planned, int) and 0 < planned < MOST else None
        seconds = sum(step.seconds for step in self._recent)
        return LiveRun(
            folder=self._folder,
            status=status,
            record=record,
            owner=owner,
            silent=silent or 0.0,
            epoch=None if self._epoch is None else self._epoch + 1,
            epochs=epochs,
            step=self._recent[-1].step + 1 if self._recent else None,
            steps=epochs * record.steps_per_epoch if epochs and record.steps_per_epoch else None,
            newest=dict(self._newest),
            edges_per_second=sum(s.edges for s in self._recent) / seconds if seconds else None,
            step_seconds=seconds / len(self._recent) if self._recent else None,
            idle=max(time.time() - metrics.stat().st_mtime, 0.0) if metrics.exists() else None,
            stall=read_if_any(StallRecord, self._folder / STALL),
        )
