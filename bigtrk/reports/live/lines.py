"""Runs that are watched without a terminal: a plain line whenever there is something to say."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bigtrk.console import duration, say
from bigtrk.records.live.state import LiveRun, Status
from bigtrk.reports.elements.figures import DASH
from bigtrk.reports.live.shown import SHOWN
from bigtrk.reports.live.table import notes, of
from bigtrk.reports.live.watch import Watch

POLL = 1.0  # s
EVERY = 10.0  # s between two lines of a run that only trains on
BY_STEP = "step/"


def print_lines(watch: Watch) -> None:
    """Prints a line for each state, epoch and validation of a run, of its steps one in ten seconds
    at most; ends once all runs have.
    """
    logs = [_Log(label) for label in watch.labels]
    while True:
        runs = watch.look()
        for log, run in zip(logs, runs, strict=True):
            for line in log.new_lines(run, time.monotonic()):
                say(line)
        if all(run.is_over for run in runs):
            return
        time.sleep(POLL)


@dataclass
class _Log:
    """The last news of a run, and their time."""

    label: str
    status: Status | None = None
    numbers: dict[str, str] = field(default_factory=dict)
    said: float = 0.0
    noted: tuple[str, ...] = ()

    def new_lines(self, run: LiveRun, now: float) -> Iterator[str]:
        """Yields what is new of a run, at so many seconds of a clock."""
        numbers = {one.name: one.write(run.newest.get(one.name)) for one in SHOWN}
        changed = {
            name for name, text in numbers.items() if text not in (DASH, self.numbers.get(name))
        }
        is_news = run.status is not self.status or any(
            not name.startswith(BY_STEP) for name in changed
        )
        if is_news or (changed and now - self.said >= EVERY):
            yield "  ".join([self.label, run.status.value, *_place(run), *_values(run, changed)])
            self.status, self.numbers, self.said = run.status, numbers, now
        noted = _kinds(run)
        if noted != self.noted:
            self.noted = noted
            yield from (f"{self.label}  {note}" for note in notes(run))


def _kinds(run: LiveRun) -> tuple[str, ...]:
    """Returns what is noted of a run, but for the seconds, which grow."""
    return tuple(note.partition(" for ")[0] for note in notes(run))


def _place(run: LiveRun) -> Iterator[str]:
    for name, done, planned in (("epoch", run.epoch, run.epochs), ("step", run.step, run.steps)):
        if done is not None:
            yield f"{name} {of(done, planned)}"
    if run.seconds_left is not None:
        yield f"{duration(run.seconds_left)} left"


def _values(run: LiveRun, names: set[str]) -> Sequence[str]:
    """Writes the scalars of these names, by their names."""
    return [
        f"{one.name} {one.write(run.newest.get(one.name))}{' %' if one.unit == '%' else ''}"
        for one in SHOWN
        if one.name in names
    ]
