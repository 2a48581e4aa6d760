"""A report as a document of facts, tables and plots; `terminal.py` and `page.py` show it.

All texts are plain: no part contains markup.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

Style = Literal["line", "dashes", "guide", "steps", "mark", "dots"]
Axis = Literal["linear", "log"]


@dataclass(frozen=True)
class Curve:
    """A line through points (x, y), or (x, y, lowest y, highest y) with an interval; skips points
    with y not finite. style: "dashes" have neither dots nor intervals; a "guide" is thin and grey;
    "steps" keep y until the next x; a "mark" is a star. texts: shown at the pointer, one per point.
    """

    name: str
    points: Sequence[tuple[float, ...]]
    colour: int = 0
    style: Style = "line"
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """A bar for each of `places`, in percent if `unit` is "%"; None: no bar."""

    name: str
    places: Sequence[str]
    values: Sequence[float | None]
    colour: int = 0
    unit: str = ""


@dataclass(frozen=True)
class Points:
    """Points, or a line through them, with NaN between two lines. axes: an array for each axis.
    colour: None: the text's. shown: if false, a click shows the layer.
    """

    name: str
    axes: Sequence[NDArray[Any]]
    colour: int | None
    is_line: bool = False
    shown: bool = True


@dataclass(frozen=True)
class Plot:
    """Traces of one type on common axes; empty traces are not shown. whole: x takes whole numbers.
    ticks: texts at values of x. bars: side by side, or stacked. legend: None: if names differ.
    """

    title: str
    labels: Sequence[str]
    traces: Sequence[Curve] | Sequence[Bars] | Sequence[Points]
    x_axis: Axis = "linear"
    y_axis: Axis = "linear"
    whole: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    bars: Literal["group", "stack"] = "group"
    legend: bool | None = None
    equal_axes: bool = False

    @property
    def filled(self) -> list[Curve | Bars | Points]:
        """Returns the traces that have a point."""
        return [trace for trace in self.traces if _has_points(trace)]


def _has_points(trace: Curve | Bars | Points) -> bool:
    match trace:
        case Curve():
            return any(math.isfinite(row[1]) for row in trace.points)
        case Bars():
            return any(value is not None for value in trace.values)
    return len(trace.axes[0]) > 0


@dataclass(frozen=True)
class Plots:
    """Plots under one title, with notes on how to read them."""

    title: str
    plots: Sequence[Plot]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """Rows of text; the first `text_columns` columns are words. A page shows `plot` above it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    text_columns: int = 1
    plot: Plot | None = None


def table_of(
    title: str,
    rows: Iterable[Mapping[str, str]],
    *notes: str,
    text_columns: int = 1,
    plot: Plot | None = None,
) -> Table:
    """Makes a table of rows, each a text by column; a cell that a row lacks is a dash."""
    found = [*rows]
    columns = tuple(dict.fromkeys(name for row in found for name in row))
    cells = tuple(tuple(row.get(name, "-") for name in columns) for row in found)
    return Table(title, columns, cells, notes, text_columns, plot)


@dataclass(frozen=True)
class Facts:
    """Facts, each a text by its label."""

    title: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Command:
    """A command to type, and its purpose."""

    purpose: str
    command: str


@dataclass(frozen=True)
class Number:
    """A key number: label, value, and `basis`: its interval and count, if any."""

    label: str
    value: str
    basis: str = ""


@dataclass(frozen=True)
class Document:
    """A report. lead: its subject, in a sentence. numbers: key numbers by run or event. verdict:
    what limits the results, and warnings about them.
    """

    title: str
    lead: str
    numbers: Sequence[tuple[str, Sequence[Number]]]
    verdict: Sequence[str]
    parts: Sequence[Plots | Table | Facts | Command]
