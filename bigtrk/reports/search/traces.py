"""Points and lines of many trials, each as one curve that a legend switches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from bigtrk.records.search import trial_name
from bigtrk.reports.elements.charts import colour, shown, thin_out
from bigtrk.reports.search.axes import setting_text

MOST_POINTS = 20_000  # of all pieces of a line
MOST_MARKED = 2_000
MOST_SETTINGS = 12  # beside a point
HOVER = "%{y}<br>%{text}<extra></extra>"
Place = float | str


@dataclass(frozen=True)
class Point:
    """A point, and what is said of it in HTML of plotly."""

    x: Place
    y: Place
    text: str


@dataclass(frozen=True)
class Piece:
    """A piece of a line through points (x, y), and what is said of it."""

    points: Sequence[tuple[float, Place]]
    text: str


def told(trial: int, settings: dict[str, Any]) -> str:
    """Says which trial something is of, and its settings."""
    known = [f"{key} {setting_text(value)}" for key, value in settings.items()]
    rest = ["..."] if len(known) > MOST_SETTINGS else []
    return "<br>".join(map(shown, [trial_name(trial), *known[:MOST_SETTINGS], *rest]))


def markers(name: str, points: Sequence[Point], number: int) -> Any:
    """Makes points of a curve's name; number: of their colour."""
    return go.Scatter(
        x=[point.x for point in points],
        y=[point.y for point in points],
        text=[point.text for point in points],
        hovertemplate=HOVER,
        name=shown(name),
        legendgroup=name,
        mode="markers",
        marker={"size": 7, "color": colour(number)},
    )


def pieces(name: str, found: Sequence[Piece], number: int, dash: str = "solid") -> Any:
    """Makes a line that is broken between its pieces, each thinned if there are very many points;
    number: of its colour; dash: of plotly's.
    """
    x: list[float | None] = []
    y: list[Place | None] = []
    text: list[str | None] = []
    for piece in found:
        points = _thinned(piece.points, MOST_POINTS // len(found))
        x += [*(at for at, _ in points), None]
        y += [*(value for _, value in points), None]
        text += [*([piece.text] * len(points)), None]
    return go.Scatter(
        x=x,
        y=y,
        text=text,
        hovertemplate=HOVER,
        name=shown(name),
        legendgroup=name,
        mode="lines+markers" if len(x) <= MOST_MARKED and dash == "solid" else "lines",
        line={"color": colour(number), "dash": dash, "width": 1.2},
        marker={"size": 4},
    )


def _thinned(points: Sequence[tuple[float, Place]], most: int) -> Sequence[tuple[float, Place]]:
    numbers = [(x, y) for x, y in points if not isinstance(y, str)]
    if len(numbers) < len(points):  # choices have no means
        return points
    return [(row[0], row[1]) for row in thin_out(numbers, max(most, 2))]
