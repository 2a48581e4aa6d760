"""A table in Markdown, and the form of its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table. rows: the cells, as many as there are columns. texts: the number of columns, from
    the left, whose cells are words; the others hold numbers and are aligned right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1

    def markdown(self) -> str:
        """Returns lines, without a line break at the end."""
        numbers = len(self.columns) - self.texts
        lines = [_line(self.columns), f"|{'---|' * self.texts}{'--:|' * numbers}"]
        return "\n".join([*lines, *map(_line, self.rows)])


def _line(cells: Sequence[str]) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def percent(part: float | None, digits: int = 0, signed: bool = False) -> str:
    """Writes 0.05 as "5 %"; nothing for None."""
    if part is None:
        return ""
    return f"{part:{'+' if signed else ''}z.{digits}%}".replace("%", " %")


def span(low: float, high: float, digits: int = 0) -> str:
    """Writes `low` to `high`, or the one number that both are."""
    ends = [f"{value:.{digits}f}" for value in (low, high)]
    return " to ".join(dict.fromkeys(ends))
