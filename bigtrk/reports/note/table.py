"""Tables on paper. Lengths are in points."""

from dataclasses import dataclass, replace
from functools import cached_property

from bigtrk.reports.elements.layout import Table
from bigtrk.reports.note.axes import DIM, TEXT
from bigtrk.reports.note.letters import cut, printed, width, wrapped
from bigtrk.reports.note.sheet import LEADING, MARGIN, ROOM, Sheet

SIZE, SMALLEST, NOTE = 7.5, 5.5, 6.5  # of letters
BETWEEN = 8.0  # columns
WIDEST = 150.0  # of a column of words
TITLE, REST = 20.0, 12.0  # height of a title, and of the line on rows that are left out


def add_table(sheet: Sheet, table: Table) -> None:
    """Adds a table with its title, as many rows as there is room for, and its notes as far as there
    is any left.
    """
    grid = _fitting(table)
    room = sheet.left - grid.head_height - TITLE - REST
    hidden = len(table.rows) - max(0, int(room / grid.step))
    if hidden > 0:
        told = f"{hidden} more rows: 'bigtrk report RUN' prints them."
        grid = _fitting(replace(table, rows=table.rows[:-hidden], notes=(told, *table.notes)))
    if sheet.left < TITLE:
        return
    sheet.heading(table.title, 9)
    if grid.table.rows:
        _add_rows(sheet, grid)
    for note in grid.table.notes:
        if lines := int(sheet.left / (LEADING * NOTE)):
            sheet.paragraph(note, NOTE, colour=DIM, most=lines)
    sheet.space(7)


@dataclass(frozen=True)
class _Grid:
    """A table in letters of a size, and where its columns are."""

    table: Table
    size: float

    @property
    def step(self) -> float:
        """Returns the height of a row."""
        return LEADING * self.size

    @cached_property
    def widths(self) -> list[float]:
        """Measures the columns with the space between them: they are as wide as their cells and as
        the longest word of their names.
        """
        found = []
        for place, name in enumerate(self.table.columns):
            cells = [width(printed(row[place]), self.size) for row in self.table.rows]
            words = [width(printed(word), self.size) for word in name.split()]
            found.append(max(min(max(cells, default=0.0), WIDEST), *words, 0.0) + BETWEEN)
        return found

    @cached_property
    def heads(self) -> list[list[str]]:
        """Wraps the columns' names."""
        named = zip(self.table.columns, self.widths, strict=True)
        return [wrapped(name, room - BETWEEN + 1, self.size) for name, room in named]

    @property
    def head_height(self) -> float:
        return max(map(len, self.heads), default=0) * self.step + 5

    def put(self, sheet: Sheet, text: str, place: int, y: float, colour: str = TEXT) -> None:
        """Puts printed text into a column: words to the left, numbers to the right."""
        is_text = place < self.table.text_columns
        x = MARGIN + sum(self.widths[:place]) + (0 if is_text else self.widths[place] - BETWEEN)
        sheet.put(text, x, y, self.size, colour=colour, to_right=not is_text)


def _fitting(table: Table) -> _Grid:
    """Chooses letters of which the table is as wide as the page, or the smallest."""
    size = SIZE
    while sum((grid := _Grid(table, size)).widths) > ROOM and size > SMALLEST:
        size -= 0.5
    return grid


def _add_rows(sheet: Sheet, grid: _Grid) -> None:
    lines = max(map(len, grid.heads))
    for place, head in enumerate(grid.heads):
        for number, line in enumerate(head, start=lines - len(head)):
            grid.put(sheet, line, place, sheet.y + number * grid.step, DIM)
    sheet.space(lines * grid.step + 2)
    sheet.rule(sheet.y)
    sheet.space(2)
    for row in grid.table.rows:
        for place, cell in enumerate(row):
            text = cut(cell, grid.widths[place] - BETWEEN + 1, grid.size)
            grid.put(sheet, text, place, sheet.y)
        sheet.space(grid.step)
