"""The page of runs while they train, and what it asks its server for."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from bigtrk.errors import printable_lines
from bigtrk.records.live.state import LiveRun
from bigtrk.reports.elements.charts import chart, curve, share_bars
from bigtrk.reports.elements.page_parts import make_page, table_section
from bigtrk.reports.live.shown import SHARES, SHOWN, Shown
from bigtrk.reports.live.table import state_table

SILENT = "No answer from bigtrk watch: it has ended, or its host cannot be reached."
MOST_NAMES = 3
ACTIVITIES = tuple(one.name.rpartition("/")[2] for one in SHARES)
Points = tuple[tuple[str, Sequence[tuple[float, float]]], ...]


class Drawn(NamedTuple):
    """A figure, and the points of which it was made."""

    points: Points
    html: str


class LivePage:
    """The page of runs of these labels. Figures are made again only where there is more to draw."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._drawn: dict[str, Drawn] = {}

    def state(self, runs: Sequence[LiveRun]) -> dict[str, Any]:
        """Returns what the page shows now: HTML above the plots, and that of each plot."""
        table = state_table(self._labels, runs)
        return {
            "now": printable_lines(table_section(replace(table, title="Now"))),
            "plots": [printable_lines(plot) for plot in self._plots(runs)],
        }

    def html(self, runs: Sequence[LiveRun]) -> str:
        """Makes the page as it is opened; its script asks for each state after."""
        state = self.state(runs)
        return make_page(
            title=f"bigtrk watch: {self._named()}",
            first=f'<p id="silent" hidden>{escape(SILENT)}</p><div id="now">{state["now"]}</div>',
            plots=state["plots"],
            script=files("bigtrk.reports.live").joinpath("live.js").read_text("utf-8"),
        )

    def _named(self) -> str:
        many = len(self._labels) > MOST_NAMES
        return f"{len(self._labels)} runs" if many else ", ".join(self._labels)

    def _plots(self, runs: Sequence[LiveRun]) -> list[str]:
        plots = [self._curve(one, runs) for one in SHOWN if one not in SHARES]
        return [plot for plot in (*plots, self._shares(runs)) if plot]

    def _curve(self, one: Shown, runs: Sequence[LiveRun]) -> str:
        """Draws a scalar of all runs under its name; epochs count from 1."""
        named = zip(self._labels, runs, strict=True)
        points = tuple((label, run.curves.get(one.name, ())) for label, run in named)
        known = self._drawn.get(one.name)
        if known is None or known.points != points:
            first = 1 if one.axis == "epoch" else 0
            lines = [
                curve(label, [(x + first, y) for x, y in rows], number)
                for number, (label, rows) in enumerate(points)
            ]
            known = self._drawn[one.name] = Drawn(points, chart(one.name, one.axis, lines))
        return known.html

    def _shares(self, runs: Sequence[LiveRun]) -> str:
        """Draws the shares of each run's last epoch."""
        bars = [
            (label, [run.newest[one.name] for one in SHARES])
            for label, run in zip(self._labels, runs, strict=True)
            if all(one.name in run.newest for one in SHARES)
        ]
        return share_bars(bars, ACTIVITIES, "epoch/shares")
