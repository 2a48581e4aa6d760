"""Ratios in bins, with binomial errors: tables and curves of them."""

from collections.abc import Sequence
from typing import Any

from bigtrk.records.evaluation import Binned
from bigtrk.reports.elements import charts, figures
from bigtrk.reports.elements.estimates import wilson

BINNED_RULE = (
    "Bars and ±: Wilson's score interval (1927) at one standard deviation (68.3 %), and half its "
    "length; counts in a bin are taken as independent."
)


def cell(part: int, whole: int) -> str:
    """Formats a ratio in percent with half its interval; a dash where nothing is counted."""
    if not whole:
        return figures.DASH
    low, high = wilson(part / whole, whole)
    return f"{100 * part / whole:.1f} ±{50 * (high - low):.1f}"


def cells(binned: Binned) -> list[str]:
    """Formats all bins, then values outside and unknown ones; dashes without counts."""
    return [cell(part, whole) for part, whole in all_counts(binned)]


def bin_rows(columns: Sequence[Binned]) -> tuple[tuple[str, ...], ...]:
    """Makes a row per bin that counts anything: its limits, the first column's count, and a cell of
    each column (at least one, all with the same bins).
    """
    counts, ratios = [all_counts(binned) for binned in columns], [cells(x) for x in columns]
    return tuple(
        (label, figures.count(counts[0][row][1]), *(column[row] for column in ratios))
        for row, label in enumerate(_labels(columns[0]))
        if any(column[row][1] for column in counts)
    )


def _labels(binned: Binned) -> list[str]:
    limits = zip(binned.edges, binned.edges[1:], strict=False)
    return [*(f"{low:g} to {high:g}" for low, high in limits), "outside", "unknown"]


def all_counts(binned: Binned) -> list[tuple[int, int]]:
    """Lists part and whole of all bins, then of values outside and of unknown ones."""
    inside = zip(binned.part, binned.whole, strict=True)
    return [*inside, binned.outside, binned.unknown]


def curve(
    name: str,
    binned: Binned | None,
    colour: int,
    log: bool = False,
    dashed: bool = False,
    place: float = 0.5,
) -> Any:
    """Makes a curve of plotly: the ratio in percent in each bin that counts anything, with its
    interval, at `place` between the bin's limits (0 to 1), `log`: between their logarithms. A
    dashed curve has no intervals. The counts are said where the pointer is.
    """
    rows: list[tuple[float, ...]] = []
    counts = []
    limits = zip(binned.edges, binned.edges[1:], strict=False) if binned else ()
    parts = zip(binned.part, binned.whole, strict=True) if binned else ()
    for (low, high), (part, whole) in zip(limits, parts, strict=True):
        if whole:
            x = low * (high / low) ** place if log else low + (high - low) * place
            ends = (100 * end for end in wilson(part / whole, whole))
            rows.append((x, 100 * part / whole, *(() if dashed else ends)))
            counts.append(f"{low:g} to {high:g}: {part} of {whole}")
    line = charts.curve(name, rows, colour, dash="dash" if dashed else "solid")
    if not rows:
        return line
    return line.update(text=counts, hovertemplate="%{y:.2f} %<br>%{text}")
