"""A report as a document of facts, tables and plots, which `terminal.py` and `page.py` show.

All texts are plain: no part holds markup.
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
    """A line through points (x, y), or (x, y, lowest y, highest y) with an interval, where y is
    finite. style: "dashes" have neither dots nor intervals; a "guide" is thin and grey; "steps"
    keep y until the next x; a "mark" is a star. texts: shown at the pointer, one per point.
    """

    name: str
    points: Sequence[tuple[float, ...]]
    colour: int = 0
    style: Style = "line"
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Bars:
    """A bar per place, in percent if `unit` is "%"; None where there is none."""

    name: str
    places: Sequence[str]
    values: Sequence[float | None]
    colour: int = 0
    unit: str = ""


@dataclass(frozen=True)
class Points:
    """Points, or a line through them, with NaN between two lines. axes: an array for each. colour:
    None: that of text. shown: if false, a click shows the layer.
    """

    name: str
    axes: Sequence[NDArray[Any]]
    colour: int | None
    is_line: bool = False
    shown: bool = True


@dataclass(frozen=True)
class Plot:
    """Traces of one kind on common axes; one without a point is not shown. whole: x is a count.
    ticks: texts at values of x. bars: side by side, or stacked. legend: None: for several traces.
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
        """Lists the traces that have a point."""
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
    """Rows of text, of which the first `text_columns` are words; a page shows `plot` above it."""

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
    """Makes a table of rows that name their cells; a cell that one row lacks is a dash."""
    found = [*rows]
    columns = tuple(dict.fromkeys(name for row in found for name in row))
    cells = tuple(tuple(row.get(name, "-") for name in columns) for row in found)
    return Table(title, columns, cells, notes, text_columns, plot)


@dataclass(frozen=True)
class Facts:
    """Texts by label."""

    title: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Command:
    """A command to type, and what it is for."""

    purpose: str
    command: str


@dataclass(frozen=True)
class Number:
    """A number that counts: what it is, its value, and its interval or what it rests on."""

    label: str
    value: str
    basis: str = ""


@dataclass(frozen=True)
class Document:
    """A report. lead: what it is about, in a sentence. numbers: by the name of each thing reported.
    verdict: limits of these numbers, or what speaks against them.
    """

    title: str
    lead: str
    numbers: Sequence[tuple[str, Sequence[Number]]]
    verdict: Sequence[str]
    parts: Sequence[Plots | Table | Facts | Command]
