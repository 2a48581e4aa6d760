"""Plots of a search: its metric by trial, by epoch, and against each setting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bigtrk.records.search import SearchFolder, Trial
from bigtrk.reports.elements.charts import Plot, curve, shown
from bigtrk.reports.search.axes import axes
from bigtrk.reports.search.lineage import copied_points, lineage_plots
from bigtrk.reports.search.metric import STATES, Metric, best_trial, state
from bigtrk.reports.search.parallel import parallel_plots
from bigtrk.reports.search.traces import Piece, Point, markers, pieces, told

COLOURS = {"complete": 0, "training": 2, "waiting": 4, "pruned": 7, "failed": 1}
BEST_SO_FAR = "best so far"
BEST_COLOUR = 3
MOST_CURVES = 200
FEW = 10  # trials or epochs, of which each has its tick


def search_plots(search: SearchFolder, metric: Metric) -> Iterator[Plot]:
    """Makes all plots that there are points for."""
    best = best_trial(search, metric)
    if search.record.population:
        yield from lineage_plots(search, metric, best.record.number if best else None)
        yield from _by_setting(search, metric)
        return
    few = _best_few(search, metric, best)
    yield _by_number(search, metric)
    yield _by_epoch(few, best, metric, len(search.trials))
    yield from parallel_plots(few, axes(search.record), metric)
    yield from _by_setting(search, metric)


def _by_number(search: SearchFolder, metric: Metric) -> Plot:
    points: dict[str, list[Point]] = {name: [] for name in STATES}
    best: list[tuple[float, float]] = []
    for trial in search.trials:
        value = metric.value(trial)
        if value is None:
            continue
        number, y = trial.record.number, metric.scale * value
        points[state(trial)].append(Point(number, y, told(number, trial.record.settings)))
        if trial.record.state == "complete":
            best.append((number, metric.best([y, *(known for _, known in best[-1:])])))
    if best:
        best.append((search.trials[-1].record.number, best[-1][1]))
    steps = curve(BEST_SO_FAR, best, BEST_COLOUR).update(mode="lines", line={"shape": "hv"})
    title = f"{shown(metric.title)} by trial"
    return Plot(title, "trial", [steps, *_markers(points)], _whole(len(search.trials)))


def _by_epoch(few: Sequence[Trial], best: Trial | None, metric: Metric, number: int) -> Plot:
    """Draws the metric of the `few` best of a `number` of trials while they trained, the best one
    in a colour of its own.
    """
    lines = []
    for name in STATES:
        found = [_curve(one, metric) for one in few if state(one) == name and one is not best]
        lines.append(pieces(name, [piece for piece in found if piece.points], COLOURS[name]))
    if best and (piece := _curve(best, metric)).points:
        line = pieces(f"best: {best.folder.name}", [piece], BEST_COLOUR)
        lines.append(line.update(line={"width": 3}))
    epochs = max((len(trial.epochs) for trial in few), default=0)
    left = number - len(few)
    title = f"{shown(metric.title)} by epoch" + (f" ({left} worse trials left out)" if left else "")
    return Plot(title, "epoch", lines, _whole(epochs))


def _best_few(search: SearchFolder, metric: Metric, best: Trial | None) -> list[Trial]:
    """Lists the trials that are drawn as lines, the best first: all, unless there are very many."""

    def key(trial: Trial) -> tuple[bool, bool, float]:
        value = metric.value(trial)
        return trial is not best, value is None, metric.sign * (value or 0.0)

    return sorted(search.trials, key=key)[:MOST_CURVES]


def _curve(trial: Trial, metric: Metric) -> Piece:
    rows = [(epoch.number, metric.scale * value) for epoch, value in metric.by_epoch(trial)]
    return Piece(rows, told(trial.record.number, trial.record.settings))


def _by_setting(search: SearchFolder, metric: Metric) -> Iterator[Plot]:
    """Draws the metric against each setting: of trials, or of the rounds of a population."""
    for axis in axes(search.record):
        title = f"{shown(metric.title)} against {shown(axis.key)}"
        if search.record.population:
            traces = copied_points(search, metric, axis)
        else:
            points: dict[str, list[Point]] = {name: [] for name in STATES}
            for trial in search.trials:
                x, value = axis.place(trial.record.settings.get(axis.key)), metric.value(trial)
                if x is not None and value is not None:
                    text = told(trial.record.number, trial.record.settings)
                    points[state(trial)].append(Point(x, metric.scale * value, text))
            traces = _markers(points)
        yield Plot(title, shown(axis.key), traces, {"xaxis": axis.layout})


def _markers(points: Mapping[str, Sequence[Point]]) -> list[Any]:
    return [markers(name, found, COLOURS[name]) for name, found in points.items()]


def _whole(count: int) -> dict[str, Any]:
    """Makes the layout of an axis of trials or epochs: no tick is between two."""
    return {"xaxis": {"dtick": 1}} if count <= FEW else {}
