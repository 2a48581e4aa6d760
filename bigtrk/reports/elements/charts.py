"""Figures of pages, which plotly draws: the theme of all, curves, bars, axes and legends.

Colours are names of those in `page.html`, each of which has a value in the light and in the dark
scheme; its script puts in the value of the scheme that is on.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from bigtrk.errors import printable

COLOURS = 8
MOST_POINTS, MOST_DOTS = 1000, 40
NAME_WIDTH = 36  # letters of a line of a name
HEIGHT, LEGEND_ROW, BAR_ROW = 300, 19, 26  # pixels
LEGEND_WIDTH, LETTER, KEY = 330, 6.2, 46  # pixels of a legend, of its letters, of the line beside

NOTHING = "rgba(0,0,0,0)"
AXIS = {
    "automargin": True,
    "gridcolor": "var(--line)",
    "zerolinecolor": "var(--line)",
    "linecolor": "var(--dim)",
    "title": {"standoff": 8},
}
SCENE_AXIS = {"gridcolor": "var(--line)", "backgroundcolor": NOTHING, "color": "var(--dim)"}
THEME: dict[str, Any] = {
    "paper_bgcolor": "var(--back)",
    "plot_bgcolor": NOTHING,
    "font": {"family": "system-ui, sans-serif", "size": 11, "color": "var(--dim)"},
    "title": {
        "x": 0.01,
        "y": 0.98,
        "yanchor": "top",
        "font": {"size": 13, "color": "var(--text)"},
    },
    "margin": {"l": 50, "r": 14, "t": 34, "b": 40},
    "xaxis": {**AXIS, "showline": True},
    "yaxis": AXIS,
    "scene": {f"{axis}axis": SCENE_AXIS for axis in "xyz"},
    "legend": {
        "orientation": "h",
        "yref": "container",
        "y": 0,
        "yanchor": "bottom",
        "itemsizing": "constant",
        "font": {"color": "var(--text)"},
    },
    "hoverlabel": {
        "bgcolor": "var(--back)",
        "bordercolor": "var(--dim)",
        "font": {"color": "var(--text)"},
        "namelength": -1,
    },
    "modebar": {"bgcolor": NOTHING, "color": "var(--dim)", "activecolor": "var(--text)"},
}
Rows = Iterable[tuple[float, ...]]


@dataclass(frozen=True)
class Plot:
    """A figure that is not drawn yet: its traces are plotly's, and so is what `layout` adds."""

    title: str
    x_label: str
    traces: Sequence[Any]
    layout: dict[str, Any] = field(default_factory=dict)

    @property
    def filled(self) -> list[Any]:
        """Lists the traces that have a point."""
        return [trace for trace in self.traces if trace.x is not None and len(trace.x)]


def colour(number: int) -> str:
    """Names a colour of the page."""
    return f"var(--c{number % COLOURS})"


def shown(name: str) -> str:
    """Writes a name from anywhere as plotly shows it: in lines that fit, and without markup, which
    plotly would follow.
    """
    return "<br>".join(escape(part, quote=False) for part in wrap(printable(name), NAME_WIDTH))


def curve(name: str, points: Rows, number: int, dash: str = "solid") -> go.Scatter:
    """Makes a line through points (x, y), or (x, y, lowest y, highest y) with an interval; those
    whose y is not finite are left out. number: of its colour; dash: of plotly's; dashed lines have
    no dots.
    """
    rows = thin_out([row for row in points if math.isfinite(row[1])])
    if not rows:  # `chart` leaves it out
        return go.Scatter(x=())
    y = [row[1] for row in rows]
    ends = [row[2:] or row[1:2] * 2 for row in rows]
    has_dots = len(rows) <= MOST_DOTS and dash == "solid"
    return go.Scatter(
        x=[row[0] for row in rows],
        y=y,
        error_y={
            # An interval that ends at its value may miss it by a rounding.
            "array": [max(0.0, high - at) for at, (_, high) in zip(y, ends, strict=True)],
            "arrayminus": [max(0.0, at - low) for at, (low, _) in zip(y, ends, strict=True)],
            "thickness": 1.3,
            "width": 0,
        }
        if any(len(row) > 2 for row in rows)
        else None,
        name=shown(name),
        legendgroup=name,
        mode="lines+markers" if has_dots else "lines",
        line={"color": colour(number), "dash": dash, "width": 1.6},
        marker={"size": 5},
    )


def guide(name: str, points: Rows) -> go.Scatter:
    """Makes a thin dashed line in no curve's colour, such as ideal scaling."""
    line = curve(name, points, 0, dash="dash")
    return line.update(line={"color": "var(--dim)", "width": 1})


def thin_out(
    rows: Sequence[tuple[float, ...]], most: int = MOST_POINTS
) -> Sequence[tuple[float, ...]]:
    """Returns at most so many rows: means over runs of neighbours of equal length."""
    size = math.ceil(len(rows) / most)
    if size <= 1:
        return rows
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        tuple(sum(column) / len(chunk) for column in zip(*chunk, strict=True)) for chunk in chunks
    ]


def chart(
    title: str, x_label: str, traces: Iterable[Any], layout: dict[str, Any] | None = None
) -> str:
    """Draws traces of plotly as a figure of a page; "" where none has a point."""
    return drawn(Plot(title, x_label, [*traces], layout or {}))


def drawn(plot: Plot) -> str:
    """Draws a figure of a page; "" where no trace has a point.

    Traces of one `legendgroup` are switched together, on all figures of the page.
    """
    if not plot.filled:
        return ""
    figure = go.Figure(plot.filled, layout={"template": "none", "title": {"text": plot.title}})
    figure.update_layout(showlegend=keep_first_keys(figure) > 1)
    figure.update_xaxes(title={"text": plot.x_label})
    figure.update_layout(plot.layout)
    return embedded(figure, HEIGHT + legend_height(figure))


def by_whole_numbers(traces: Sequence[Any]) -> dict[str, Any]:
    """Makes the layout of an x axis of epochs, ranks and the like: no tick is between two."""
    values = [x for trace in traces for x in trace.x or ()]
    is_short = bool(values) and max(values) - min(values) < MOST_DOTS / 4
    return {"xaxis": {"dtick": 1}} if is_short else {}


def share_bars(
    bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], title: str | None = None
) -> str:
    """Draws a stacked bar per (name, shares); shares are of 1 and named by `names`."""
    if not bars:
        return ""
    rows = [shown(name) for name, _ in bars]
    figure = go.Figure(
        [
            go.Bar(
                x=[100 * shares[place] for _, shares in bars],
                y=rows,
                orientation="h",
                name=shown(what),
                legendgroup=what,
                marker={"color": colour(place)},
                hovertemplate="%{x:.1f} %",
            )
            for place, what in enumerate(names)
        ],
        layout={"template": "none", "barmode": "stack", "xaxis": {"title": {"text": "%"}}},
    )
    figure.update_layout(title={"text": title})
    # Names such as 0001 are no numbers.
    figure.update_yaxes(type="category", autorange="reversed")
    lines = sum(row.count("<br>") + 1 for row in rows)
    return embedded(figure, 90 + BAR_ROW * lines + legend_height(figure))


def embedded(figure: go.Figure, height: int) -> str:
    """Writes a figure into a page, whose script draws it once it comes into view. height: pixels.

    No text can end the script's element: plotly's JSON has no "<".
    """
    label = escape(figure.layout.title.text or "figure")
    return (
        f'<figure><div class="plot" role="img" aria-label="{label}" style="height:{height}px">'
        f'</div><script type="application/json">{to_json_plotly(figure)}</script></figure>'
    )


@cache
def theme() -> str:
    """Returns what all figures share, as JSON of plotly's layout."""
    text: str = to_json_plotly(go.Layout(**THEME))
    return text


def keep_first_keys(figure: go.Figure) -> int:
    """Leaves each group one key of the legend; returns how many there are."""
    groups: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.legendgroup not in groups
        groups.add(trace.legendgroup)
    return len(groups)


def legend_height(figure: go.Figure) -> int:
    """Estimates the pixels that the legend takes on a narrow screen."""
    if figure.layout.showlegend is False:
        return 0
    rows, left = 1, float(LEGEND_WIDTH)
    for trace in figure.data:
        if trace.showlegend is not False:
            lines = trace.name.split("<br>")
            width = KEY + LETTER * max(map(len, lines))
            if width > left:
                rows, left = rows + 1, float(LEGEND_WIDTH)
            rows, left = rows + len(lines) - 1, left - width
    return LEGEND_ROW * rows
