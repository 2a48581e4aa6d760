"""`bigtrk watch`: runs while they train, as tables in a terminal, elsewhere as lines."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bigtrk.console import duration, say
from bigtrk.disk.folder_lock import BEAT
from bigtrk.errors import InputError
from bigtrk.records.live import LiveRun, RunFollower, Status
from bigtrk.records.run_folder import short_names
from bigtrk.reports import figures
from bigtrk.reports.document import Table
from bigtrk.reports.terminal import drawn

POLL = 1.0  # s
EVERY = 10.0  # s between two lines of a run that only trains on
SILENT = 3 * BEAT  # s without a sign of life, after which a note says so
LATE, LEAST_LATE = 10, 30.0  # times a step's seconds, and seconds, until the next is late
GAP = 2  # letters between columns
BY_STEP = "step/"
ENDS = {
    "epochs": "all epochs are trained",
    "minutes": "its time is up",
    "patience": "no better epoch came",
    "imported": "it was trained elsewhere",
}


# The scalars that are shown, in this order: how each is written, and in which unit.
SHOWN: dict[str, tuple[Callable[[float | None], str], str]] = {
    "step/loss": (figures.loss, ""),
    "step/pt_loss": (figures.loss, ""),
    "epoch/train_loss": (figures.loss, ""),
    "validation/validation/loss": (figures.loss, ""),
    "epoch/validation/loss": (figures.loss, ""),
    "epoch/average/validation/loss": (figures.loss, ""),
    "epoch/embedding/loss": (figures.loss, ""),
    "epoch/validation/auc": (figures.percent, "%"),
    "epoch/validation/efficiency": (figures.percent, "%"),
    "epoch/validation/target_purity": (figures.percent, "%"),
    "epoch/validation/purity": (figures.percent, "%"),
    "step/lr": (figures.norm, ""),
    "step/seconds": (figures.seconds, "s"),
    "epoch/edges_per_second": (figures.rate, ""),
    "epoch/peak_memory_bytes": (figures.memory, ""),
    "epoch/shares/compute": (figures.share, "%"),
    "epoch/shares/exchange": (figures.share, "%"),
    "epoch/shares/reduce": (figures.share, "%"),
    "epoch/shares/data": (figures.share, "%"),
}


class Watch:
    """Watches several runs, each of which may come later. labels: a short name of each.

    Raises:
        InputError: a folder is that of something else, or a record in it is broken.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._followers = {folder: RunFollower(folder) for folder in folders}
        self.labels = tuple(short_names([*self._followers]))
        for follower in self._followers.values():
            follower.look()

    def look(self) -> list[LiveRun]:
        """Returns the state of each run; one that became unreadable meanwhile leaves the others."""
        return [self._look(folder) for folder in self._followers]

    def _look(self, folder: Path) -> LiveRun:
        try:
            return self._followers[folder].look()
        except (InputError, OSError) as error:
            return LiveRun(folder, Status.UNREADABLE, reason=str(error))


def show_dashboard(watch: Watch, console: Console) -> None:
    """Shows the runs, again each second, until all have ended."""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            runs = watch.look()
            live.update(dashboard(watch.labels, runs, console), refresh=True)
            if all(run.is_over for run in runs):
                return
            time.sleep(POLL)


def dashboard(labels: Sequence[str], runs: Sequence[LiveRun], console: Console) -> Group:
    """Draws tables, of as many runs each as fit side by side. What must be known stands above them:
    a terminal cuts off what it has no room for below.
    """
    whole = state_table(labels, runs)
    tables = [
        drawn(replace(state_table(labels[some], runs[some]), notes=()))
        for some in _fitting(whole, console.width)
    ]
    return Group(*(Text(note, style="bold") for note in whole.notes), *tables)


def _fitting(table: Table, width: int) -> Iterator[slice]:
    """Yields the runs of each table that fits `width` letters, of the columns of the whole one."""
    what, *columns = zip(*(table.columns, *table.rows), strict=True)
    room = width - max(map(len, what))
    start, left = 0, room
    for place, column in enumerate(columns):
        needed = GAP + max(map(len, column))
        if needed > left and place > start:
            yield slice(start, place)
            start, left = place, room
        left -= needed
    yield slice(start, len(columns))


def state_table(labels: Sequence[str], runs: Sequence[LiveRun]) -> Table:
    """Makes the table of runs, a column of each; what no run knows is left out."""
    facts: list[tuple[str, Callable[[LiveRun], str]]] = [
        ("state", lambda run: run.status.value),
        ("epoch", lambda run: _of(run.epoch, run.epochs)),
        ("step", lambda run: _of(run.step, run.steps)),
        (
            "time to the end",
            lambda run: figures.DASH if run.seconds_left is None else duration(run.seconds_left),
        ),
        ("edges/s, last steps", lambda run: figures.rate(run.edges_per_second)),
    ]
    rows = [(what, *map(write, runs)) for what, write in facts]
    for name, (write, unit) in SHOWN.items():
        label = f"{name}, {unit}" if unit else name
        rows.append((label, *(write(run.newest.get(name)) for run in runs)))
    known = tuple(row for row in rows if set(row[1:]) != {figures.DASH})
    named = zip(labels, runs, strict=True)
    told = tuple(f"{label}: {each}" for label, run in named for each in notes(run))
    return Table("", ("", *labels), known, told)


def notes(run: LiveRun) -> Iterator[str]:
    """Says what a reader must know of a run: why it ended, or what keeps it."""
    match run.status:
        case Status.WAITING:
            yield "has not begun"
        case Status.FINISHED:
            assert run.record is not None
            assert run.record.ended is not None
            yield f"finished: {ENDS[run.record.ended]}"
        case Status.STOPPED:
            yield f"ended before its end; bigtrk resume {run.folder} goes on"
        case Status.LOST:
            assert run.holder is not None
            yield (
                f"not heard from for {duration(run.holder.silent)}: {run.holder.owner} is gone; "
                f"bigtrk resume {run.folder} goes on"
            )
        case Status.UNREADABLE:
            yield run.reason
        case _:
            yield from _delays(run)
    if run.stall is not None and run.status is not Status.FINISHED:
        yield f"{'ended by a stall' if run.stall.ends else 'stalled'}: {run.stall.text}"


def _delays(run: LiveRun) -> Iterator[str]:
    if run.holder is not None and run.holder.silent >= SILENT:
        yield f"not heard from for {duration(run.holder.silent)}: {run.holder.owner}"
    if run.idle is None or run.step_seconds is None or run.status is Status.STARTING:
        return
    if run.idle >= max(LATE * run.step_seconds, LEAST_LATE):
        step = f"{figures.seconds(run.step_seconds)} s"
        yield f"no record for {duration(run.idle)}; the last steps took {step} each"


def _of(done: int | None, planned: int | None) -> str:
    """Writes a progress, "3/10", or "3" where its end is not known."""
    if done is None:
        return figures.DASH
    return f"{done}/{planned}" if planned else str(done)


def print_lines(watch: Watch) -> None:
    """Prints a line for each state, epoch and validation of a run, of its steps one in ten seconds
    at most; ends once all runs have.
    """
    logs = [Log(label) for label in watch.labels]
    while True:
        runs = watch.look()
        for log, run in zip(logs, runs, strict=True):
            for line in log.new_lines(run, time.monotonic()):
                say(line)
        if all(run.is_over for run in runs):
            return
        time.sleep(POLL)


@dataclass
class Log:
    """The last news of a run, and their time."""

    label: str
    status: Status | None = None
    numbers: dict[str, str] = field(default_factory=dict)
    said: float = 0.0
    noted: tuple[str, ...] = ()

    def new_lines(self, run: LiveRun, now: float) -> Iterator[str]:
        """Yields the news of a run at the time `now`, in seconds."""
        numbers = {name: write(run.newest.get(name)) for name, (write, _) in SHOWN.items()}
        changed = {
            name
            for name, text in numbers.items()
            if text not in (figures.DASH, self.numbers.get(name))
        }
        is_news = run.status is not self.status or any(
            not name.startswith(BY_STEP) for name in changed
        )
        if is_news or (changed and now - self.said >= EVERY):
            places = (("epoch", run.epoch, run.epochs), ("step", run.step, run.steps))
            told = [f"{what} {_of(done, of)}" for what, done, of in places if done is not None]
            if run.seconds_left is not None:
                told.append(f"{duration(run.seconds_left)} left")
            for name, (_, unit) in SHOWN.items():
                if name in changed:
                    told.append(f"{name} {numbers[name]}{' %' if unit == '%' else ''}")
            yield "  ".join([self.label, run.status.value, *told])
            self.status, self.numbers, self.said = run.status, numbers, now
        # Seconds grow, and are no news.
        noted = tuple(note.partition(" for ")[0] for note in notes(run))
        if noted != self.noted:
            self.noted = noted
            yield from (f"{self.label}  {note}" for note in notes(run))
