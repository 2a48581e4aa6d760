"""Tables of gradients: the mini-batches' beside the exact one, and what they predict."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from scripts.docs.table import Table, percent

DATA = {
    "heptrkx": "HEPTrkX graphs",
    "ex3": "simulated, Ex3's size",
    "event1000": "event 1000",
}
WAYS = {
    "events": "whole events",
    "shadow": "ShaDow",
    "naive-sectors": "naive sectors",
    "halo-sectors": "sectors with halo",
    "wedges": "wedges",
}


def gradient_ways(found: Any) -> Table:
    """Lists bias, direction and progress of each way's draws, at the start and after training."""
    columns = (
        "", "weights", "way", "bias", "noise", "cosine of a draw", "of the mean draw",
        "progress of a step", "seconds",
    )  # fmt: skip
    rows = [
        [label, point["weights"], WAYS[way["way"]], *_cells(way)]
        for name, label in DATA.items()
        for point in (found["points"][name][0], found["points"][name][-1])
        for way in point["drawn"]
    ]
    return Table(columns, rows, texts=3)


def _cells(way: Any) -> Iterator[str]:
    of = way["whole"]
    yield _bias(of["bias_squared"])
    yield "" if of["noise"] is None else f"{math.sqrt(max(of['noise']['value'], 0)):.2f}"
    yield f"{of['cosine']['value']:.2f}"
    yield f"{of['cosine_of_mean']:.3f}"
    yield percent(of["progress"]["value"], 1)
    yield f"{way['seconds']:.3f}"


def _bias(squared: Any) -> str:
    """Writes a bias with its error, or the bound of two errors where it may be none."""
    if squared is None:
        return ""
    value, error = squared["value"], squared["error"]
    if error is None:
        return percent(math.sqrt(max(value, 0)), 1)
    if value <= 2 * error:
        return f"< {percent(math.sqrt(max(value, 0) + 2 * error), 1)}"
    root = math.sqrt(value)
    return f"{percent(root, 1)} ± {percent(error / (2 * root), 1)}"


def gradient_noise(found: Any) -> Table:
    """Lists the noise scale of whole events along the trainings of several events."""
    rows = [
        [label, point["weights"], f"{point['loss']:.4f}", *_noise_scale(way["whole"]["signal"])]
        for name, label in DATA.items()
        for point in found["points"][name]
        for way in point["drawn"]
        if way["way"] == "events" and way["whole"]["signal"]
    ]
    columns = ("", "weights", "loss", "noise scale in events", "one error below", "above")
    return Table(columns, rows, texts=2)


def _noise_scale(signal: Any) -> Iterator[str]:
    value, error = signal["value"], signal["error"] or 0
    for bound in (value, value + error, value - error):
        yield f"{1 / bound:.3g}" if bound > 0 else "not bounded"


def gradient_same(found: Any) -> Table:
    """Lists how far the same gradient is in other arithmetic, of an event at worst; of bf16 also
    the bias of the mean gradient, and the least cosine of an event's.
    """
    rows = [
        [DATA[name], label, *(write(point) for point in of_data)]
        for name, of_data in found["points"].items()
        for one in of_data[0]["same"]
        for label, write in _same_rows(one["way"])
    ]
    # All data have as many points; what they are called differs.
    points = max((len(of_data) for of_data in found["points"].values()), default=0)
    columns = ("", "", "at the start", *(f"after piece {i}" for i in range(1, points)))
    return Table(columns, rows, texts=2)


def _same_rows(way: str) -> Iterator[tuple[str, Callable[[Any], str]]]:
    yield way, lambda point: f"{_same(point, way)['worst']:.1e}"
    if way == "bf16":
        yield f"{way}, bias", lambda point: f"{_same(point, way)['difference']:.1e}"
        yield f"{way}, least cosine", lambda point: f"{_same(point, way)['cosine']:.4f}"


def _same(point: Any, way: str) -> Any:
    return next(one for one in point["same"] if one["way"] == way)


def gradient_prediction(found: Any) -> Table:
    """Lists, for each study, the way that each point predicts to win at equal time, and tau."""
    rows = [
        [f"`{study}`", one["weights"], one["predicted"], one["won"], f"{one['tau']:+.2f}"]
        for study, compared in found["studies"].items()
        for one in compared
    ]
    columns = ("study", "weights", "predicted", "won", "Kendall's tau of all ways")
    return Table(columns, rows, texts=4)
