"""The page of an event: in three dimensions, across the beam and along it."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bigtrk.records.run_folder import Run
from bigtrk.reports.display.layers import BREAK, EventPicture, Floats, Layer, layers
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.charts import embedded, keep_first_keys, legend_height
from bigtrk.reports.elements.first_screen import Headline, first_screen, ratio
from bigtrk.reports.elements.page_parts import header, write_page
from bigtrk.reports.facts import facts, sentence

HEIGHT_3D, HEIGHT_2D = 620, 520  # pixels
RULE = (
    "Found and lost: ATLAS matching, strict mode, of the particles to be found; a fake track "
    "matches no particle. Lines join the hits of a track by their distance from the origin. Halo "
    "hits are the ends of cut edges, of which another sector holds a copy. A click on a name of "
    "the legend shows or hides it in all views."
)


def write_display_html(
    path: Path, event: str, picture: EventPicture, told: dict[str, str], run: Run | None = None
) -> None:
    """Writes the page of an event to `path`, atomically. told: facts of the event and its tracks by
    label; run: whose model scored the edges.
    """
    drawn = layers(picture)
    of_run = sentence(run) if run else ""
    found, lost = (None if x is None else len(x) for x in (picture.found, picture.lost))
    verdict = []
    if found is not None and lost is not None and picture.fake is not None:
        verdict = [
            f"Of {figures.count(found + lost)} particles to be found {figures.count(lost)} are "
            f"lost; {figures.count(len(picture.fake))} of {figures.count(picture.n_tracks)} tracks "
            f"are fakes."
        ]
    write_page(
        path,
        title=f"bigtrk display: {event}",
        first=first_screen(f"Event {event}. {of_run}", [(event, _headlines(picture))], verdict),
        plots="",
        tables=_section(picture, drawn)
        + header(f"Event {event}", told)
        + (header("Model", facts(run)) if run else ""),
    )


def _headlines(picture: EventPicture) -> list[Headline]:
    known = []
    if picture.found is not None and picture.lost is not None:
        n = len(picture.found) + len(picture.lost)
        known += ratio("track efficiency", len(picture.found) / n if n else None, n)
    if picture.fake is not None:
        n = picture.n_tracks
        known += ratio("fake tracks", len(picture.fake) / n if n else None, n)
    return [
        *known,
        Headline("tracks", figures.count(picture.n_tracks)),
        Headline("hits", figures.count(len(picture.position))),
        Headline("edges", figures.count(len(picture.scores))),
    ]


def _section(picture: EventPicture, drawn: Sequence[Layer]) -> str:
    views = f'{_in_3d(picture, drawn)}<div class="plots">{_across(picture, drawn)}'
    notes = "".join(f"<p>{escape(note)}</p>" for note in (RULE, *_thinning(drawn)))
    return f"<section>{views}{_along(picture, drawn)}</div>{notes}</section>"


def _thinning(drawn: Sequence[Layer]) -> list[str]:
    """Says what is not drawn of layers with more than a browser can turn."""
    less = [
        f"{layer.name}: {layer.drawn:,} of {layer.total:,}"
        for layer in drawn
        if layer.drawn < layer.total
    ]
    return [f"Drawn in part, evenly thinned: {'; '.join(less)}."] if less else []


def _in_3d(picture: EventPicture, drawn: Sequence[Layer]) -> str:
    """Draws with the beam, z, from left to right."""
    axes = (picture.position[:, 2], picture.position[:, 0], picture.position[:, 1])
    traces = []
    for layer in drawn:
        x, y, z = (_column(values, layer) for values in axes)
        traces.append(go.Scatter3d(x=x, y=y, z=z, **_style(layer, 1.6, 3)))
    shown_as = zip("xyz", "zxy", strict=True)
    titles = {f"{axis}axis": {"title": {"text": f"{name}, mm"}} for axis, name in shown_as}
    scene = {**titles, "aspectmode": "data", "camera": {"eye": {"x": 0.6, "y": 1.2, "z": 0.6}}}
    layout = {"template": "none", "title": {"text": "In three dimensions"}, "scene": scene}
    figure = go.Figure(traces, layout={**layout, "margin": {"l": 0, "r": 0, "t": 30, "b": 0}})
    keep_first_keys(figure)
    return embedded(figure, HEIGHT_3D + legend_height(figure))


def _across(picture: EventPicture, drawn: Sequence[Layer]) -> str:
    x, y, _ = picture.position.T
    labels, round_ = ("x, mm", "y, mm"), {"scaleanchor": "x"}
    return _flat("Across the beam: r and phi", (x, y), labels, drawn, round_)


def _along(picture: EventPicture, drawn: Sequence[Layer]) -> str:
    x, y, z = picture.position.T
    return _flat("Along the beam: r and z", (z, np.hypot(x, y)), ("z, mm", "r, mm"), drawn, {})


def _flat(
    title: str,
    axes: tuple[Floats, Floats],
    labels: tuple[str, str],
    drawn: Sequence[Layer],
    y_axis: dict[str, Any],
) -> str:
    """Draws a projection; the legend of the view in three dimensions is that of all."""
    traces = []
    for layer in drawn:
        x, y = (_column(values, layer) for values in axes)
        traces.append(go.Scattergl(x=x, y=y, **_style(layer, 2.5, 5)))
    layout = {"template": "none", "title": {"text": title}, "showlegend": False}
    figure = go.Figure(traces, layout=layout)
    figure.update_xaxes(title={"text": labels[0]})
    figure.update_yaxes(title={"text": labels[1]}, **y_axis)
    return embedded(figure, HEIGHT_2D)


def _column(values: Floats, layer: Layer) -> Any:
    """Returns a coordinate of a layer's hits, NaN at breaks; single precision halves the page."""
    return np.where(layer.rows == BREAK, np.nan, values[layer.rows]).astype(np.float32)


def _style(layer: Layer, size: float, ring: float) -> dict[str, Any]:
    marker = {"color": layer.colour, "size": ring if layer.is_ring else size}
    # Squares have the fewest triangles.
    symbol = {"symbol": "circle-open" if layer.is_ring else "square", "line": {"width": 0}}
    mode = {"mode": "lines", "line": {"color": layer.colour, "width": 1.5}}
    return {
        "name": layer.name,
        "legendgroup": layer.name,
        "visible": True if layer.shown else "legendonly",
        **(mode if layer.is_line else {"mode": "markers", "marker": {**marker, **symbol}}),
    }
