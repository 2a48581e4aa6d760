"""The dashboard of runs in a terminal."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from bigtrk.records.live.state import LiveRun
from bigtrk.reports.elements.layout import Table, drawn
from bigtrk.reports.live.table import state_table
from bigtrk.reports.live.watch import Watch

POLL = 1.0  # s
GAP = 2  # letters between columns
HEIGHTS = "▁▂▃▄▅▆▇█"
LOSS = "step/loss"


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
        parts += _losses(labels, runs, console.width)
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


def _losses(labels: Sequence[str], runs: Sequence[LiveRun], width: int) -> Iterator[Text]:
    """Draws the loss of each run from its first step on, between its least and its largest."""
    room = max(width - max(map(len, labels)) - len(LOSS) - 4, 1)
    for label, run in zip(labels, runs, strict=True):
        values = [value for _, value in run.curves.get(LOSS, ())]
        if len(values) > 1:
            yield Text(f"{label}  {LOSS}  {_heights(values, room)}", no_wrap=True)


def _heights(values: Sequence[float], room: int) -> str:
    """Draws values in at most `room` letters, each the mean of its stretch."""
    letters = min(room, len(values))
    ends = [len(values) * i // letters for i in range(letters + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = min(means), max(means)
    scale = (len(HEIGHTS) - 1) / (high - low) if high > low else 0.0
    return "".join(HEIGHTS[round(scale * (mean - low))] for mean in means)
