"""The tables of an audit of gradients, and its line of JSON."""

import math
from typing import Any

from rich.console import Console

from bigtrk.records.audit import (
    AuditedWeights,
    AuditRecord,
    DrawnWay,
    DrawStatistics,
    Measured,
    SameGradient,
)
from bigtrk.reports import figures
from bigtrk.reports.document import Table
from bigtrk.reports.terminal import at_width, show_table

# An estimate within so many errors of nothing is told as a bound.
_ERRORS = 2
_COLUMNS = (
    "way",
    "bias %",
    "noise",
    "cosine of a draw",
    "of their mean",
    "noise scale (draws)",
    "in events",
    "progress %",
    "ms",
)
_NOTES = (
    "Beside the exact gradient of the same events: bias of the mean draw, relative to the exact "
    "gradient of all events, and cosines. Noise: root of the trace of a draw's covariance, from "
    "event to event too, likewise relative.",
    "Noise scale: the number of draws in a step beyond which more draws stop paying (McCandlish et "
    "al. 2018), with one standard error to either side; in events' worth of edges. Progress: of a "
    "step along one draw, 100 for the exact gradient. ms: of computing a draw's gradient.",
)
_PARTS = ("way", "part", "bias %", "cosine of a draw", "of their mean", "noise scale (draws)")
_SAME = ("way", "reference", "difference", "worst event", "cosine", "")


def show_audit(record: AuditRecord, console: Console) -> None:
    """Prints the tables of each point, and of the newest by part of the model."""
    for table in audit_tables(record):
        show_table(table, at_width(console))


def audit_tables(record: AuditRecord) -> list[Table]:
    """Makes the tables of each point, and of the newest one by part of the model."""
    tables = [table for point in record.points for table in _of_point(point, record)]
    newest = record.points[-1]
    return [*tables, _by_part(newest)] if newest.drawn else tables


def _of_point(point: AuditedWeights, record: AuditRecord) -> list[Table]:
    step = "" if point.step is None else f" after {figures.count(point.step)} steps"
    title = (
        f"Gradients at the weights of {point.weights!r}{step}: loss {figures.loss(point.loss)}, "
        f"norm {figures.norm(point.norm)}, {record.events} events, {record.draws} draws of others"
    )
    tables = []
    if point.drawn:
        tables.append(Table(title, _COLUMNS, tuple(map(_row, point.drawn)), _NOTES))
    if point.same:
        rows = tuple(map(_same_row, point.same))
        tables.append(Table(f"The same gradient, at {point.weights!r}", _SAME, rows, (), 2))
    return tables


def _row(way: DrawnWay) -> tuple[str, ...]:
    found = way.whole
    in_events = way.noise_scale_in_events
    return (
        way.way,
        _bias(found.bias_squared),
        _root(found.noise),
        _cosine(found.cosine),
        _number(found.cosine_of_mean),
        _noise_scale(found.signal),
        figures.DASH if in_events is None else _short(in_events),
        figures.DASH if found.progress is None else f"{100 * found.progress.value:.1f}",
        f"{1000 * way.seconds:,.0f}",
    )


def _by_part(point: AuditedWeights) -> Table:
    rows = tuple(
        (way.way if first else "", part, *_part_cells(found))
        for way in point.drawn
        for first, (part, found) in zip(
            [True] + [False] * len(way.parts), way.parts.items(), strict=False
        )
    )
    return Table(f"By part of the model, at {point.weights!r}", _PARTS, rows, (), 2)


def _part_cells(found: DrawStatistics) -> tuple[str, ...]:
    return (
        _bias(found.bias_squared),
        _cosine(found.cosine),
        _number(found.cosine_of_mean),
        _noise_scale(found.signal),
    )


def _same_row(found: SameGradient) -> tuple[str, ...]:
    verdict = {None: "", True: "exact", False: "not exact: see bigtrk check-model"}[found.exact]
    numbers = (f"{found.difference:.1e}", f"{found.worst:.1e}", f"{found.cosine:.6f}")
    return (found.way, found.reference, *numbers, verdict)


def bias(squared: Measured | None) -> tuple[float, float | None] | None:
    """Gives a bias and its error from those of its square; 0 for a square below 0."""
    if squared is None:
        return None
    value = math.sqrt(max(squared.value, 0.0))
    if squared.error is None or not value:
        return value, None
    return value, squared.error / (2 * value)


def _bias(squared: Measured | None) -> str:
    """Writes a bias in percent, as a bound where it may be none."""
    found = bias(squared)
    if squared is None or found is None:
        return figures.DASH
    error = squared.error or 0.0
    if error and squared.value <= _ERRORS * error:
        return f"< {_short(100 * math.sqrt(max(squared.value, 0.0) + _ERRORS * error))}"
    return _short(100 * found[0]) + ("" if found[1] is None else f" ±{_short(100 * found[1])}")


def _noise_scale(signal: Measured | None) -> str:
    """Writes one over the signal, with what one error to either side makes of it."""
    if signal is None:
        return figures.DASH
    low = signal.value + (signal.error or 0.0)
    high = signal.value - (signal.error or 0.0)
    if signal.value <= 0:
        return f"> {_short(1 / low)}" if low > 0 else figures.DASH
    if signal.error is None:
        return _short(1 / signal.value)
    upper = f"to {_short(1 / high)}" if high > 0 else "or more"
    return f"{_short(1 / signal.value)} ({_short(1 / low)} {upper})"


def _root(squared: Measured | None) -> str:
    return figures.DASH if squared is None else f"{math.sqrt(max(squared.value, 0.0)):.3g}"


def _cosine(found: Measured | None) -> str:
    if found is None:
        return figures.DASH
    return f"{found.value:.3f}" + ("" if found.error is None else f" ±{found.error:.3f}")


def _short(value: float) -> str:
    """Writes two digits, or as many as stand before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _number(found: float | None) -> str:
    return figures.DASH if found is None else f"{found:.3f}"


def audit_summary(record: AuditRecord) -> dict[str, Any]:
    """Gives the audit in short: a bias, a cosine and a noise scale for each way and point."""
    return {
        "events": record.events,
        "points": {point.weights: _summary_of(point) for point in record.points},
    }


def _summary_of(point: AuditedWeights) -> dict[str, Any]:
    drawn = {way.way: _way_summary(way) for way in point.drawn}
    same = {found.way: _same_summary(found) for found in point.same}
    return {"step": point.step, "loss": point.loss, "norm": point.norm, **drawn, **same}


def _same_summary(found: SameGradient) -> dict[str, float | bool | None]:
    """Gives the bias of the mean gradient; it is the same each time, so that it has no noise."""
    return {
        "bias": found.difference,
        "cosine": found.cosine,
        "worst": found.worst,
        "exact": found.exact,
    }


def _way_summary(way: DrawnWay) -> dict[str, float | None]:
    found, biased = way.whole, bias(way.whole.bias_squared)
    return {
        "bias": None if biased is None else biased[0],
        "bias_error": None if biased is None else biased[1],
        "cosine": None if found.cosine is None else found.cosine.value,
        "cosine_of_mean": found.cosine_of_mean,
        "noise_scale": found.noise_scale,
        "noise_scale_events": way.noise_scale_in_events,
        "progress": None if found.progress is None else found.progress.value,
        "seconds": way.seconds,
    }
