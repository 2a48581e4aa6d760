"""`bigtrk watch`: shows runs while they train, as a table on a terminal, elsewhere as lines."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bigtrk.console import duration, say
from bigtrk.disk.folder_lock import BEAT
from bigtrk.errors import shell_word
from bigtrk.records.live import LiveRun, RunFollower, Status
from bigtrk.records.run_folder import short_names
from bigtrk.reports import figures
from bigtrk.reports.document import table_of
from bigtrk.reports.terminal import drawn

POLL = 1.0  # s
EVERY = 10.0  # s between two lines of a run without news
SILENT = 3 * BEAT  # s without a sign of life, after which a note says so
LATE, LEAST_LATE = 10, 30.0  # times a step's seconds, and seconds, until the next is late
ENDS = {
    "epochs": "all epochs are trained",
    "minutes": "its time is up",
    "patience": "no better epoch came",
    "imported": "it was trained elsewhere",
}
# The scalars that are shown: the column of each, and how it is written.
SHOWN: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "step/loss": ("loss", figures.loss),
    "epoch/validation/loss": ("val. loss", figures.loss),
    "epoch/embedding/loss": ("val. loss of hits", figures.loss),
    "epoch/validation/auc": ("AUC %", figures.percent),
}


def watch_runs(folders: Sequence[Path], console: Console) -> None:
    """Shows runs until all have ended: as a table, or, without a terminal, as a line per change.
    Raises InputError if a folder holds something else, or a record in it is broken.
    """
    labels, followers = short_names(folders), [RunFollower(folder) for folder in folders]
    logs = [Log(label) for label in labels]
    is_table = console.is_terminal and not console.is_dumb_terminal
    with Live(console=console, auto_refresh=False) if is_table else nullcontext() as live:
        while True:
            runs = [follower.look() for follower in followers]
            if live:
                live.update(dashboard(labels, runs), refresh=True)
            else:
                for log, run in zip(logs, runs, strict=True):
                    for line in log.new_lines(run):
                        say(line)
            if all(run.is_over for run in runs):
                return
            time.sleep(POLL)


def dashboard(labels: Sequence[str], runs: Sequence[LiveRun]) -> Group:
    """Draws notes, then a row per run; a small terminal cuts off the last rows, not the notes."""
    named = [*zip(labels, runs, strict=True)]
    told = [Text(f"{label}: {note}", "bold") for label, run in named for note in notes(run)]
    rows = [{"run": label, **cells(run)} for label, run in named]
    return Group(*told, drawn(table_of("", rows, text_columns=2)))


def cells(run: LiveRun) -> dict[str, str]:
    """Returns the known facts of a run, as cells by column."""
    known = {
        "state": run.status.value,
        "ranks": figures.count(run.record.world_size if run.record else None),
        "epoch": _progress(run.epoch, run.epochs),
        "step": _progress(run.step, run.steps),
        **{title: write(run.newest.get(name)) for name, (title, write) in SHOWN.items()},
        "edges/s": figures.rate(run.edges_per_second),
    }
    return {title: text for title, text in known.items() if text != figures.DASH}


def _progress(done: int | None, planned: int | None) -> str:
    return f"{done}/{planned}" if done is not None and planned else figures.text(done)


def notes(run: LiveRun) -> Iterator[str]:
    """Yields notes on a run's state: why it ended, or what it waits for."""
    unheard = f"not heard from for {duration(run.silent)}: {run.owner}"
    resume = f"bigtrk resume {shell_word(run.folder)} goes on"
    match run.status:
        case Status.WAITING:
            yield "has not begun"
        case Status.FINISHED if run.record and run.record.ended:
            yield f"finished: {ENDS[run.record.ended]}"
            return
        case Status.STOPPED:
            yield f"ended before its end; {resume}"
        case Status.LOST:
            yield f"{unheard} is gone; {resume}"
        case _ if run.silent >= SILENT:
            yield unheard
        case Status.TRAINING if run.idle and run.step_seconds:
            if run.idle >= max(LATE * run.step_seconds, LEAST_LATE):
                step = f"{figures.seconds(run.step_seconds)} s"
                yield f"no record for {duration(run.idle)}; the last steps took {step} each"
    if run.stall is not None:
        yield f"{'ended by a stall' if run.stall.ends else 'stalled'}: {run.stall.text}"


class Log:
    """Prints one run's news as lines, and remembers the last ones and their time."""

    def __init__(self, label: str) -> None:
        self._label, self._said = label, 0.0
        self._news: dict[str, str] = {}
        self._noted: list[str] = []

    def new_lines(self, run: LiveRun) -> Iterator[str]:
        """Yields lines with the news of a run since the last call."""
        news, now = cells(run), time.monotonic()
        is_later = any(news.get(x) != self._news.get(x) for x in ("state", "epoch", "val. loss"))
        if is_later or (news != self._news and now - self._said >= EVERY):
            told = (f"{name} {text}" for name, text in news.items() if name != "state")
            yield "  ".join([self._label, news["state"], *told])
            self._news, self._said = news, now
        # A larger number of seconds is no news.
        noted = [note.partition(" for ")[0] for note in notes(run)]
        if noted != self._noted:
            self._noted = noted
            yield from (f"{self._label}  {note}" for note in notes(run))
