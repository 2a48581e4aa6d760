"""The state of runs as a table: a column for each, a row for each thing that is known of one."""

from collections.abc import Callable, Iterator, Sequence

from bigtrk.console import duration
from bigtrk.disk.folder_lock import BEAT
from bigtrk.records.live.state import LiveRun, Status
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.live.shown import SHOWN

SILENT = 3 * BEAT  # s without a sign of life that are worth a word
LATE, LEAST_LATE = 10, 30.0  # times a step's seconds, and seconds, until the next is late
ENDS = {
    "epochs": "all epochs are trained",
    "minutes": "its time is up",
    "patience": "no better epoch came",
    "imported": "it was trained elsewhere",
}
Write = Callable[[LiveRun], str]


def state_table(labels: Sequence[str], runs: Sequence[LiveRun]) -> Table:
    """Makes the table of runs; what no run knows is left out."""
    facts: list[tuple[str, Write]] = [
        ("state", lambda run: run.status.value),
        ("epoch", lambda run: of(run.epoch, run.epochs)),
        ("step", lambda run: of(run.step, run.steps)),
        ("time to the end", lambda run: _time(run.seconds_left)),
        ("edges/s, last steps", lambda run: figures.rate(run.edges_per_second)),
    ]
    rows = [(what, *map(write, runs)) for what, write in facts]
    rows += [(one.label, *(one.write(run.newest.get(one.name)) for run in runs)) for one in SHOWN]
    known = [row for row in rows if set(row[1:]) != {figures.DASH}]
    named = zip(labels, runs, strict=True)
    told = [f"{label}: {each}" for label, run in named for each in notes(run)]
    return Table("", ("", *labels), tuple(known), tuple(told))


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


def of(done: int | None, planned: int | None) -> str:
    """Writes how many are done of how many, if that is known: "3/10"."""
    if done is None:
        return figures.DASH
    return f"{done}/{planned}" if planned else str(done)


def _time(seconds: float | None) -> str:
    return figures.DASH if seconds is None else duration(seconds)
