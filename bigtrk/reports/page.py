"""Documents as pages: one file of HTML with its style, script and figures, which asks for nothing.

The page's script (`page.html`) draws figures with plotly once they come into view. Their colours
are names, each of which has a value in the light and in the dark scheme.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, Template
from markupsafe import Markup
from plotly import __version__ as plotly_version
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from bigtrk import __version__
from bigtrk.disk.files import write_atomically
from bigtrk.errors import printable, printable_lines
from bigtrk.reports.document import Bars, Curve, Document, Number, Plot, Points, Table
from bigtrk.reports.figures import DASH, INTERVALS

COLOURS = 8
MOST_POINTS, MOST_DOTS = 1000, 40
NAME_WIDTH = 36  # letters of a line of a name
HEIGHT, HEIGHT_2D, HEIGHT_3D, LEGEND_ROW, BAR_ROW = 300, 520, 620, 19, 26  # pixels
LEGEND_WIDTH, LETTER, KEY = 330, 6.2, 46  # pixels of a legend, of its letters, of its line
OF = "; of "

NOTHING, LINE, TEXT, DIM = "rgba(0,0,0,0)", "var(--line)", "var(--text)", "var(--dim)"
AXIS: dict[str, Any] = {
    "automargin": True,
    "gridcolor": LINE,
    "zerolinecolor": LINE,
    "linecolor": DIM,
    "title": {"standoff": 8},
}
SCENE_AXIS = {"gridcolor": LINE, "backgroundcolor": NOTHING, "color": DIM}
THEME: dict[str, Any] = {
    "paper_bgcolor": "var(--back)",
    "plot_bgcolor": NOTHING,
    "font": {"family": "system-ui, sans-serif", "size": 11, "color": DIM},
    "title": {"x": 0.01, "y": 0.98, "yanchor": "top", "font": {"size": 13, "color": TEXT}},
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
        "font": {"color": TEXT},
    },
    "hoverlabel": {
        "bgcolor": "var(--back)",
        "bordercolor": DIM,
        "font": {"color": TEXT},
        "namelength": -1,
    },
    "modebar": {"bgcolor": NOTHING, "color": DIM, "activecolor": TEXT},
}


def write_page(document: Document, path: Path) -> None:
    """Writes the page of a document to `path`, atomically: the first screen, with the numbers of
    one thing large and those of several side by side, then all parts.
    """
    numbers = [(name, own) for name, own in document.numbers if own]
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, bigtrk {__version__}, plotly {plotly_version}"
    page: str = _template().render(
        document=document,
        numbers=numbers,
        has_intervals=any(OF in one.basis for _, own in numbers for one in own),
        intervals=INTERVALS,
        side_by_side=_side_by_side,
        figure=_figure,
        kind=lambda part: type(part).__name__,
        made=f"Made {made}.",
        theme=Markup(to_json_plotly(go.Layout(**THEME))),
        plotly=Markup(get_plotlyjs()),  # 4.8 MB
    )
    write_atomically(path, lambda temporary: temporary.write_text(page, "utf-8"))


@cache
def _template() -> Template:
    def finish(value: Any) -> Any:
        # Names of files may hold halves of characters, which no encoding knows.
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return printable_lines(value) if is_text else value

    made = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=finish)
    return made.from_string(files("bigtrk.reports").joinpath("page.html").read_text("utf-8"))


def _side_by_side(numbers: Sequence[tuple[str, Sequence[Number]]]) -> Table:
    labels = [*dict.fromkeys(one.label for _, own in numbers for one in own)]
    rows = []
    for name, own in numbers:
        cells = {}
        for one in own:
            interval = one.basis.partition(";")[0]
            cells[one.label] = f"{one.value} ({interval})" if interval else one.value
        rows.append((name, *(cells.get(label, DASH) for label in labels)))
    return Table("Side by side", ("run", *labels), tuple(rows))


def shown(name: str, width: int = NAME_WIDTH) -> str:
    """Writes a name from anywhere as plotly shows it: in lines that fit, and without markup, which
    plotly would follow.
    """
    return "<br>".join(escape(part, quote=False) for part in wrap(printable(name), width))


def _figure(plot: Plot) -> Markup:
    """Writes a figure, whose height leaves room for the legend on a narrow screen; "" where no
    trace has a point. No text can end the script's element: plotly's JSON has no "<".
    """
    traces = [_trace(trace, plot) for trace in plot.filled]
    if not traces:
        return Markup()
    groups: set[str] = set()
    for trace in traces:  # each group has one key in the legend
        trace["showlegend"] = trace["legendgroup"] not in groups
        groups.add(trace["legendgroup"])
    has_legend = len(groups) > 1 if plot.legend is None else plot.legend
    layout, height = _layout(plot, traces)
    layout["showlegend"] = has_legend
    height += _legend_height(traces) if has_legend else 0
    figure = to_json_plotly(go.Figure(traces, {"template": "none", **layout}))
    label = escape(printable(plot.title) or "figure")
    return Markup(
        f'<figure><div class="plot" role="img" aria-label="{label}" style="height:{height}px">'
        f'</div><script type="application/json">{figure}</script></figure>'
    )


def _layout(plot: Plot, traces: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Makes a plot's layout, and its height without a legend."""
    title = {"text": shown(plot.title, 200)}
    first = plot.traces[0]
    if isinstance(first, Points) and len(first.axes) == 3:
        axes = zip("xyz", plot.labels, strict=True)
        scene: dict[str, Any] = {f"{axis}axis": {"title": {"text": label}} for axis, label in axes}
        eye = {"x": 0.6, "y": 1.2, "z": 0.6}
        margin = {"l": 0, "r": 0, "t": 30, "b": 0}
        scene |= {"aspectmode": "data", "camera": {"eye": eye}}
        return {"title": title, "scene": scene, "margin": margin}, HEIGHT_3D
    if plot.bars == "stack":  # names such as 0001 are no numbers
        stacked = {"type": "category", "autorange": "reversed"}
        lines = sum(name.count("<br>") + 1 for name in traces[0]["y"])
        layout = {"title": title, "barmode": "stack", "xaxis": {"title": {"text": "%"}}}
        return {**layout, "yaxis": stacked}, 90 + BAR_ROW * lines
    x_label, *y_label = (shown(label) for label in plot.labels)
    x_axis: dict[str, Any] = {"title": {"text": x_label}}
    y_axis: dict[str, Any] = {"title": {"text": y_label[0]}} if y_label else {}
    if not isinstance(first, Bars):
        x_axis["type"] = plot.x_axis
    y_axis["type"] = plot.y_axis
    if plot.equal_axes:
        y_axis["scaleanchor"] = "x"
    if plot.ticks:
        x_axis |= {"tickvals": [*plot.ticks], "ticktext": [*plot.ticks.values()]}
    values = [x for trace in traces for x in trace["x"]] if plot.whole else []
    if values and max(values) - min(values) < MOST_DOTS / 4:
        x_axis["dtick"] = 1
    height = HEIGHT_2D if isinstance(first, Points) else HEIGHT
    layout = {"title": title, "xaxis": x_axis, "yaxis": y_axis}
    return {**layout, **({"barmode": "group"} if isinstance(first, Bars) else {})}, height


def _trace(trace: Curve | Bars | Points, plot: Plot) -> dict[str, Any]:
    if isinstance(trace, Curve):
        return _curve(trace)
    return _bars(trace, plot) if isinstance(trace, Bars) else _points(trace)


def _curve(curve: Curve) -> dict[str, Any]:
    found = [row for row in curve.points if math.isfinite(row[1])]
    rows = thin_out(found)
    y = [row[1] for row in rows]
    is_line = curve.style == "line"
    has_dots = is_line and len(rows) <= MOST_DOTS
    colour = DIM if curve.style == "guide" else f"var(--c{curve.colour % COLOURS})"
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": [row[0] for row in rows],
        "y": y,
        "name": shown(curve.name),
        "legendgroup": curve.group or curve.name,
        "mode": "lines+markers" if has_dots else "lines",
        "line": {
            "color": colour,
            "width": 1 if curve.style == "guide" else 1.6,
            "dash": "dash" if curve.style in ("dashes", "guide") else "solid",
        },
        "marker": {"size": 5},
    }
    if curve.style == "steps":
        trace["line"]["shape"] = "hv"
    if curve.style in ("mark", "dots"):
        star = {"symbol": "star", "size": 12} if curve.style == "mark" else {"size": 7}
        trace |= {"mode": "markers", "marker": {**star, "color": colour}}
    if any(len(row) > 2 for row in rows) and curve.style != "dashes":
        ends = [row[2:] or row[1:2] * 2 for row in rows]
        # An interval that ends at its value may miss it by a rounding.
        above = [max(0.0, high - at) for at, (_, high) in zip(y, ends, strict=True)]
        below = [max(0.0, at - low) for at, (low, _) in zip(y, ends, strict=True)]
        trace["error_y"] = {"array": above, "arrayminus": below, "thickness": 1.3, "width": 0}
    if curve.texts and len(rows) == len(curve.texts):
        texts = [shown(text, 100) for text in curve.texts]
        trace |= {"text": texts, "hovertemplate": "%{y:.5g}<br>%{text}"}
    return trace


def _bars(bars: Bars, plot: Plot) -> dict[str, Any]:
    is_stack, scale = plot.bars == "stack", 100 if bars.unit == "%" else 1
    places = [shown(place, NAME_WIDTH if is_stack else 12) for place in bars.places]
    values = [None if value is None else scale * value for value in bars.values]
    number = f"%{{{'x' if is_stack else 'y'}:.4g}} {bars.unit}"
    return {
        "type": "bar",
        **({"x": values, "y": places} if is_stack else {"x": places, "y": values}),
        "orientation": "h" if is_stack else "v",
        "name": shown(bars.name),
        "legendgroup": bars.name,
        "marker": {"color": f"var(--c{bars.colour % COLOURS})"},
        "hovertemplate": number,
    }


def _points(points: Points) -> dict[str, Any]:
    colour = TEXT if points.colour is None else f"var(--c{points.colour % COLOURS})"
    is_flat = len(points.axes) == 2
    # Squares have the fewest triangles.
    marker = {"color": colour, "size": 2.5 if is_flat else 1.6, "symbol": "square"}
    drawn = {"mode": "lines", "line": {"color": colour, "width": 1.5}}
    return {
        "type": "scattergl" if is_flat else "scatter3d",
        **dict(zip("xyz", points.axes, strict=False)),
        "name": shown(points.name),
        "legendgroup": points.name,
        "visible": True if points.shown else "legendonly",
        **(drawn if points.is_line else {"mode": "markers", "marker": marker}),
    }


def thin_out(
    rows: Sequence[tuple[float, ...]], most: int = MOST_POINTS
) -> Sequence[tuple[float, ...]]:
    """Returns at most `most` rows: means over neighbours."""
    size = math.ceil(len(rows) / most)
    if size <= 1:
        return rows
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        tuple(sum(column) / len(chunk) for column in zip(*chunk, strict=True)) for chunk in chunks
    ]


def _legend_height(traces: Sequence[dict[str, Any]]) -> int:
    """Estimates the pixels that the legend takes on a narrow screen."""
    rows, left = 1, float(LEGEND_WIDTH)
    for trace in traces:
        if trace["showlegend"]:
            lines = trace["name"].split("<br>")
            width = KEY + LETTER * max(map(len, lines))
            if width > left:
                rows, left = rows + 1, float(LEGEND_WIDTH)
            rows, left = rows + len(lines) - 1, left - width
    return LEGEND_ROW * rows
