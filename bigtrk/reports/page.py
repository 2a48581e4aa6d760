"""Writes documents as pages: one HTML file with style, script and figures, which loads nothing.

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
from bigtrk.reports.document import Bars, Curve, Document, Number, Plot, Points, Table, table_of
from bigtrk.reports.figures import INTERVALS

COLOURS = 8
MOST_POINTS, MOST_DOTS = 1000, 40
NAME_WIDTH = 36  # letters of a line of a name
HEIGHT, HEIGHT_2D, HEIGHT_3D, LEGEND_ROW, BAR_ROW = 300, 520, 620, 19, 26  # pixels
LEGEND_WIDTH, LETTER, KEY = 330, 6.2, 46  # pixels of a legend, of its letters, of its line
OF = "; of "

TEXT, DIM = "var(--text)", "var(--dim)"


def write_page(document: Document, path: Path) -> None:
    """Writes a document as an HTML page to `path`, atomically."""
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
        plotly=Markup(get_plotlyjs()),  # 4.8 MB
    )
    write_atomically(path, lambda temporary: temporary.write_text(page, "utf-8"))


@cache
def _template() -> Template:
    def finish(value: Any) -> Any:
        # File names may contain lone surrogates, which UTF-8 cannot encode.
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return printable_lines(value) if is_text else value

    made = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=finish)
    return made.from_string(files("bigtrk.reports").joinpath("page.html").read_text("utf-8"))


def _side_by_side(numbers: Sequence[tuple[str, Sequence[Number]]]) -> Table:
    rows = []
    for name, own in numbers:
        cells = {"run": name}
        for one in own:
            interval = one.basis.partition(";")[0]
            cells[one.label] = f"{one.value} ({interval})" if interval else one.value
        rows.append(cells)
    return table_of("Side by side", rows)


def shown(name: str, width: int = NAME_WIDTH) -> str:
    """Returns a name for plotly: broken into short lines, its markup escaped."""
    return "<br>".join(escape(part, quote=False) for part in wrap(printable(name), width))


def _figure(plot: Plot) -> Markup:
    """Returns a plot's HTML; "" if no trace has a point. No "<" in its JSON can end the script."""
    traces = [_trace(trace, plot) for trace in plot.filled]
    if not traces:
        return Markup()
    names: set[str] = set()
    for trace in traces:  # each name has one key in the legend
        trace["showlegend"] = trace["legendgroup"] not in names
        names.add(trace["legendgroup"])
    has_legend = len(names) > 1 if plot.legend is None else plot.legend
    layout, height = _layout(plot, traces)
    layout |= {"title": {"text": shown(plot.title, 200)}, "showlegend": has_legend}
    height += _legend_height(traces) if has_legend else 0
    figure = to_json_plotly(go.Figure(traces, {"template": "none", **layout}))
    label = escape(printable(plot.title) or "figure")
    return Markup(
        f'<figure><div class="plot" role="img" aria-label="{label}" style="height:{height}px">'
        f'</div><script type="application/json">{figure}</script></figure>'
    )


def _layout(plot: Plot, traces: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Returns a plot's layout for plotly, and its height in pixels without a legend."""
    first = plot.traces[0]
    labels = [{"text": shown(label)} for label in plot.labels]
    if len(labels) == 3:
        scene: dict[str, Any] = {
            f"{x}axis": {"title": y} for x, y in zip("xyz", labels, strict=True)
        }
        scene |= {"aspectmode": "data", "camera": {"eye": {"x": 0.6, "y": 1.2, "z": 0.6}}}
        return {"scene": scene, "margin": {"l": 0, "r": 0, "t": 30, "b": 0}}, HEIGHT_3D
    if plot.bars == "stack":  # names such as 0001 are no numbers
        stacked = {"type": "category", "autorange": "reversed"}
        lines = sum(name.count("<br>") + 1 for name in traces[0]["y"])
        layout = {"barmode": "stack", "xaxis": {"title": {"text": "%"}}, "yaxis": stacked}
        return layout, 90 + BAR_ROW * lines
    x_axis: dict[str, Any] = {"title": labels[0]}
    y_axis: dict[str, Any] = {"title": labels[1]} if len(labels) > 1 else {}
    y_axis["type"] = plot.y_axis
    if isinstance(first, Bars):
        return {"barmode": "group", "xaxis": x_axis, "yaxis": y_axis}, HEIGHT
    x_axis["type"] = plot.x_axis
    if plot.equal_axes:
        y_axis["scaleanchor"] = "x"
    if plot.ticks:
        x_axis |= {"tickvals": [*plot.ticks], "ticktext": [*plot.ticks.values()]}
    values = [x for trace in traces for x in trace["x"]] if plot.whole else []
    if values and max(values) - min(values) < MOST_DOTS / 4:
        x_axis["dtick"] = 1
    return {"xaxis": x_axis, "yaxis": y_axis}, HEIGHT_2D if isinstance(first, Points) else HEIGHT


def _trace(trace: Curve | Bars | Points, plot: Plot) -> dict[str, Any]:
    named = {"name": shown(trace.name), "legendgroup": trace.name}
    colour = TEXT if trace.colour is None else f"var(--c{trace.colour % COLOURS})"
    match trace:
        case Curve():
            return named | _curve(trace, DIM if trace.style == "guide" else colour)
        case Bars():
            return named | _bars(trace, plot.bars == "stack", colour)
    is_flat = len(trace.axes) == 2
    # Squares have the fewest triangles.
    marker = {"color": colour, "size": 2.5 if is_flat else 1.6, "symbol": "square"}
    drawn = {"mode": "lines", "line": {"color": colour, "width": 1.5}}
    return {
        **named,
        "type": "scattergl" if is_flat else "scatter3d",
        **dict(zip("xyz", trace.axes, strict=False)),
        "visible": True if trace.shown else "legendonly",
        **(drawn if trace.is_line else {"mode": "markers", "marker": marker}),
    }


def _curve(curve: Curve, colour: str) -> dict[str, Any]:
    rows = thin_out([row for row in curve.points if math.isfinite(row[1])])
    y = [row[1] for row in rows]
    has_dots = curve.style == "line" and len(rows) <= MOST_DOTS
    trace: dict[str, Any] = {
        "type": "scatter",
        "x": [row[0] for row in rows],
        "y": y,
        "mode": "lines+markers" if has_dots else "lines",
        "line": {
            "color": colour,
            "width": 1 if curve.style == "guide" else 1.6,
            "dash": "dash" if curve.style in ("dashes", "guide") else "solid",
            "shape": "hv" if curve.style == "steps" else "linear",
        },
        "marker": {"size": 5},
    }
    if curve.style in ("mark", "dots"):
        star = {"symbol": "star", "size": 12} if curve.style == "mark" else {"size": 7}
        trace |= {"mode": "markers", "marker": {**star, "color": colour}}
    if any(len(row) > 2 for row in rows) and curve.style != "dashes":
        ends = [row[2:] or row[1:2] * 2 for row in rows]
        # The end of an interval may lie beyond its value by a rounding error.
        above = [max(0.0, high - at) for at, (_, high) in zip(y, ends, strict=True)]
        below = [max(0.0, at - low) for at, (low, _) in zip(y, ends, strict=True)]
        trace["error_y"] = {"array": above, "arrayminus": below, "thickness": 1.3, "width": 0}
    if curve.texts and len(rows) == len(curve.texts):
        texts = [shown(text, 100) for text in curve.texts]
        trace |= {"text": texts, "hovertemplate": "%{y:.5g}<br>%{text}"}
    return trace


def _bars(bars: Bars, is_stack: bool, colour: str) -> dict[str, Any]:
    scale = 100 if bars.unit == "%" else 1
    places = [shown(place, NAME_WIDTH if is_stack else 12) for place in bars.places]
    values = [None if value is None else scale * value for value in bars.values]
    return {
        "type": "bar",
        **({"x": values, "y": places} if is_stack else {"x": places, "y": values}),
        "orientation": "h" if is_stack else "v",
        "marker": {"color": colour},
        "hovertemplate": f"%{{{'x' if is_stack else 'y'}:.4g}} {bars.unit}",
    }


def thin_out(rows: Sequence[tuple[float, ...]]) -> Sequence[tuple[float, ...]]:
    """Returns at most MOST_POINTS rows; if there are more, means over neighbouring rows."""
    size = math.ceil(len(rows) / MOST_POINTS)
    if size <= 1:
        return rows
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [
        tuple(sum(column) / len(chunk) for column in zip(*chunk, strict=True)) for chunk in chunks
    ]


def _legend_height(traces: Sequence[dict[str, Any]]) -> int:
    """Returns an estimate of the legend's height in pixels, on a narrow screen."""
    names = [trace["name"].split("<br>") for trace in traces if trace["showlegend"]]
    per_row = max(
        1, LEGEND_WIDTH // int(KEY + LETTER * max(len(x) for name in names for x in name))
    )
    return LEGEND_ROW * -(-len(names) // per_row) * max(map(len, names))
