"""Plots of pages drawn on paper: plotly's traces on axes of matplotlib."""

from html import unescape
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator

from bigtrk.reports.elements.charts import COLOURS, Plot
from bigtrk.reports.note.letters import printed

# Those of pages in their light scheme (reports/elements/page.html).
DIM, LINE, STRIPE, TEXT = "#5d6878", "#d9dee6", "#f5f7f9", "#1d2430"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#6b7280")
NAMED = {f"var(--c{number})": PALETTE[number] for number in range(COLOURS)}
SMALL = 6.5  # points, of letters at axes
MOST_TICKS = 6  # with texts of their own


def draw(axes: Axes, plot: Plot) -> None:
    """Draws the curves of a plot with their intervals, its axes, and a legend of several curves."""
    for trace in plot.filled:
        _draw_trace(axes, trace)
    _set_x_axis(axes, plot.layout.get("xaxis", {}))
    if plot.layout.get("yaxis", {}).get("type") == "log":
        _set_logarithmic(axes, "y")
    axes.grid(color=LINE, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, colors=DIM, length=2.5, width=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=DIM, linewidth=0.6)
    axes.set_xlabel(printed(plot.x_label), fontsize=SMALL + 0.5, color=DIM, labelpad=2)
    names = set(axes.get_legend_handles_labels()[1])
    if len(names) > 1:
        axes.legend(fontsize=SMALL, frameon=True, framealpha=0.7, edgecolor="none", loc="best")


def _draw_trace(axes: Axes, trace: Any) -> None:
    colour = NAMED.get(trace.line.color or trace.marker.color, DIM)
    is_marked = "markers" in trace.mode
    axes.plot(
        trace.x,
        trace.y,
        color=colour,
        linewidth=trace.line.width or 1.0,
        linestyle=("--" if trace.line.dash == "dash" else "-") if "lines" in trace.mode else "none",
        drawstyle="steps-post" if trace.line.shape == "hv" else "default",
        marker=("*" if trace.marker.symbol == "star" else "o") if is_marked else "none",
        markersize=9 if trace.marker.symbol == "star" else 2.5,
        zorder=3 if trace.marker.symbol == "star" else 2,
        label=_name(trace.name),
    )
    if trace.error_y.array is not None:
        ends = [trace.error_y.arrayminus, trace.error_y.array]
        axes.errorbar(trace.x, trace.y, ends, fmt="none", ecolor=colour, elinewidth=0.9)


def _name(text: str) -> str:
    """Writes the name of a trace, in which plotly would follow markup (`charts.shown`).

    matplotlib leaves out of legends what begins with an underscore.
    """
    name = "\n".join(printed(unescape(part)) for part in text.split("<br>"))
    return f" {name}" if name.startswith("_") else name


def _set_x_axis(axes: Axes, layout: dict[str, Any]) -> None:
    if layout.get("type") == "log":
        _set_logarithmic(axes, "x")
    elif "tickvals" in layout:
        every = -(-len(layout["tickvals"]) // MOST_TICKS)
        axes.xaxis.set_major_locator(FixedLocator(layout["tickvals"][::every]))
        axes.xaxis.set_major_formatter(FixedFormatter(layout["ticktext"][::every]))
    elif "dtick" in layout:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _set_logarithmic(axes: Axes, which: str) -> None:
    """Makes an axis logarithmic, with numbers beside its ticks: powers would be mathematics, which
    texts are not.
    """
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    subs = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
