"""Plots of a population: who went on from whose checkpoint, and with which settings."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bigtrk.records.search import RoundRecord, SearchFolder, trial_name
from bigtrk.reports.elements.charts import Plot, shown
from bigtrk.reports.search.axes import Axis, axes
from bigtrk.reports.search.metric import Metric
from bigtrk.reports.search.traces import Piece, Place, Point, markers, pieces, told

OWN, COPIED, BEST = "from its own checkpoint", "from another's checkpoint", "ancestry of the best"
COLOURS = {OWN: 0, COPIED: 1, BEST: 3}
LINEAGE_RULE = (
    "Points: rounds, at the epochs trained by then. Dashed: from the round whose checkpoint was "
    "copied to the one that went on from it."
)
Rounds = dict[tuple[int, int], RoundRecord]


def lineage_plots(search: SearchFolder, metric: Metric, best: int | None) -> Iterator[Plot]:
    """Makes plots of the metric and of each setting by epoch. best: the number of the best trial,
    whose ancestors are drawn in a colour of their own.
    """
    rounds = {(one.round, one.trial): one for one in search.rounds}
    line = [] if best is None else ancestry(rounds, best)

    def value(one: RoundRecord) -> Place | None:
        return None if one.value is None else metric.scale * one.value

    yield Plot(f"{shown(metric.title)} by epoch", "epoch", _lines(rounds, line, value))
    for axis in axes(search.record):
        title = f"{shown(axis.key)} by epoch"
        yield Plot(title, "epoch", _lines(rounds, line, _setting(axis)), {"yaxis": axis.layout})


def _setting(axis: Axis) -> Callable[[RoundRecord], Place | None]:
    return lambda one: axis.place(one.settings.get(axis.key))


def copied_points(search: SearchFolder, metric: Metric, axis: Axis) -> list[Any]:
    """Makes points of the metric after each round against a setting in it."""
    points: dict[str, list[Point]] = {OWN: [], COPIED: []}
    for one in search.rounds:
        x = axis.place(one.settings.get(axis.key))
        if x is not None and one.value is not None:
            name = OWN if one.source is None else COPIED
            points[name].append(Point(x, metric.scale * one.value, _told(one)))
    return [markers(name, found, COLOURS[name]) for name, found in points.items()]


def ancestry(rounds: Rounds, trial: int) -> list[RoundRecord]:
    """Lists the rounds in which the weights of a trial were trained, from the first one on."""
    own = [one for one in rounds.values() if one.trial == trial and one.value is not None]
    at = (max((one.round for one in own), default=-1), trial)
    found: list[RoundRecord] = []
    while one := rounds.get(at):
        found.append(one)
        before = _before(one)
        if before[0] >= at[0]:  # which no search writes
            break
        at = before
    return found[::-1]


def _before(one: RoundRecord) -> tuple[int, int]:
    """Returns the round and the trial whose checkpoint a round began with."""
    if one.source is None or one.source_round is None:
        return one.round - 1, one.trial
    return one.source_round, one.source


def _lines(
    rounds: Rounds,
    best: Sequence[RoundRecord],
    y: Callable[[RoundRecord], Place | None],
) -> list[Any]:
    """Draws each round as a line from the one before it, and the ancestry of the best."""
    found: dict[str, list[Piece]] = {OWN: [], COPIED: []}
    for one in rounds.values():
        before = rounds.get(_before(one))
        points = [(of.epochs, at) for of in (before, one) if of and (at := y(of)) is not None]
        if y(one) is not None:
            found[OWN if one.source is None else COPIED].append(Piece(points, _told(one)))
    known = [(one.epochs, at) for one in best if (at := y(one)) is not None]
    text = _told(best[-1]) if best else ""
    line = pieces(BEST, [Piece(known, text)] if known else [], COLOURS[BEST])
    return [
        pieces(OWN, found[OWN], COLOURS[OWN]),
        pieces(COPIED, found[COPIED], COLOURS[COPIED], dash="dash"),
        line.update(line={"width": 3}),
    ]


def _told(one: RoundRecord) -> str:
    source = "" if one.source is None else f" from {trial_name(one.source)}"
    return f"round {one.round + 1}{source}: {told(one.trial, one.settings)}"
