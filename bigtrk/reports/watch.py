"""`bigtrk watch`: runs while they train, as tables and curves in a terminal, elsewhere as lines."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
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
SILENT = 3 * BEAT  # s without a sign of life that are worth a word
LATE, LEAST_LATE = 10, 30.0  # times a step's seconds, and seconds, until the next is late
GAP = 2  # letters between columns
HEIGHTS = "▁▂▃▄▅▆▇█"
LOSS, BY_STEP = "step/loss", "step/"
ENDS = {
    "epochs": "all epochs are trained",
    "minutes": "its time is up",
    "patience": "no better epoch came",
    "imported": "it was trained elsewhere",
}


@dataclass(frozen=True)
class Shown:
    """A scalar by its name, how its value is written, and in which unit that is."""

    name: str
    write: Callable[[float | None], str]
    unit: str = ""


# Of all scalars that are recorded those that are shown, in this order.
SHOWN = (
    Shown(LOSS, figures.loss),
    Shown("step/pt_loss", figures.loss),
    Shown("epoch/train_loss", figures.loss),
    Shown("validation/validation/loss", figures.loss),
    Shown("epoch/validation/loss", figures.loss),
    Shown("epoch/average/validation/loss", figures.loss),
    Shown("epoch/embedding/loss", figures.loss),
    Shown("epoch/validation/auc", figures.percent, "%"),
    Shown("epoch/validation/efficiency", figures.percent, "%"),
    Shown("epoch/validation/target_purity", figures.percent, "%"),
    Shown("epoch/validation/purity", figures.percent, "%"),
    Shown("step/lr", figures.norm),
    Shown("step/seconds", figures.seconds, "s"),
    Shown("epoch/edges_per_second", figures.rate),
    Shown("epoch/peak_memory_bytes", figures.memory),
    Shown("epoch/shares/compute", figures.share, "%"),
    Shown("epoch/shares/exchange", figures.share, "%"),
    Shown("epoch/shares/reduce", figures.share, "%"),
    Shown("epoch/shares/data", figures.share, "%"),
)
NAMES = frozenset(one.name for one in SHOWN)


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
    """Draws tables of as many runs beside each other as fit, and each run's loss as a curve. What
    must be known stands above them: a terminal cuts off what it has no room for below.
    """
    whole = state_table(labels, runs)
    parts: list[RenderableType] = [Text(note, style="bold") for note in whole.notes]
    for beside in _beside(whole, console.width):
        table = state_table(labels[beside], runs[beside])
        parts.append(drawn(replace(table, notes=())))
    if not console.options.ascii_only:
        room = max(console.width - max(map(len, labels)) - len(LOSS) - 4, 1)
        for label, run in zip(labels, runs, strict=True):
            if len(run.losses) > 1:
                parts.append(Text(f"{label}  {LOSS}  {_heights(run.losses, room)}", no_wrap=True))
    return Group(*parts)


def _beside(table: Table, width: int) -> Iterator[slice]:
    """Yields the runs of each table, of the columns of the whole one, in so many letters."""
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


def _heights(losses: Sequence[tuple[int, float]], room: int) -> str:
    """Draws losses in at most `room` letters, each the mean of its stretch of steps."""
    first, last = losses[0][0], losses[-1][0]
    letters = min(room, len(losses))
    stretches: list[list[float]] = [[] for _ in range(letters)]
    for step, loss in losses:
        stretches[(step - first) * letters // (last - first + 1)].append(loss)
    means = [sum(found) / len(found) for found in stretches if found]
    low, high = min(means), max(means)
    scale = (len(HEIGHTS) - 1) / (high - low) if high > low else 0.0
    return "".join(HEIGHTS[round(scale * (mean - low))] for mean in means)


def state_table(labels: Sequence[str], runs: Sequence[LiveRun]) -> Table:
    """Makes the table of runs, a column of each; what no run knows is left out."""
    facts: list[tuple[str, Callable[[LiveRun], str]]] = [
        ("state", lambda run: run.status.value),
        ("epoch", lambda run: _of(run.epoch, run.epochs)),
        ("step", lambda run: _of(run.step, run.steps)),
        ("time to the end", lambda run: _time(run.seconds_left)),
        ("edges/s, last steps", lambda run: figures.rate(run.edges_per_second)),
    ]
    rows = [(what, *map(write, runs)) for what, write in facts]
    for one in SHOWN:
        label = f"{one.name}, {one.unit}" if one.unit else one.name
        rows.append((label, *(one.write(run.newest.get(one.name)) for run in runs)))
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
    """Writes how many are done of how many, if that is known: "3/10"."""
    if done is None:
        return figures.DASH
    return f"{done}/{planned}" if planned else str(done)


def _time(seconds: float | None) -> str:
    return figures.DASH if seconds is None else duration(seconds)


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
        """Yields what is new of a run, at so many seconds of a clock."""
        numbers = {one.name: one.write(run.newest.get(one.name)) for one in SHOWN}
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
            for one in SHOWN:
                if one.name in changed:
                    unit = " %" if one.unit == "%" else ""
                    told.append(f"{one.name} {numbers[one.name]}{unit}")
            yield "  ".join([self.label, run.status.value, *told])
            self.status, self.numbers, self.said = run.status, numbers, now
        # Seconds grow, and are no news.
        noted = tuple(note.partition(" for ")[0] for note in notes(run))
        if noted != self.noted:
            self.noted = noted
            yield from (f"{self.label}  {note}" for note in notes(run))
