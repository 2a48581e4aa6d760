"""Prints documents on a terminal, or elsewhere as plain text; plots only appear on pages."""

from collections.abc import Mapping
from textwrap import wrap

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from bigtrk.console import Screen
from bigtrk.reports.document import Command, Document, Facts, Table

PLAIN_WIDTH = 100
LONGEST_WORD = 24


def show(document: Document, console: Console) -> None:
    """Prints facts and tables, then commands and verdict; 100 columns wide if not on a terminal."""
    out = at_width(console)
    for part in document.parts:
        match part:
            case Facts():
                show_header(part.title, part.facts, out)
            case Table():
                show_table(part, out)
    for part in document.parts:
        if isinstance(part, Command):
            show_header(part.purpose, {"": part.command}, out)
    for line in document.verdict:
        out.print(Text(line))


def at_width(console: Console) -> Console:
    """Returns the console if it is a terminal, else one 100 columns wide on the same file."""
    return console if console.is_terminal else Screen(file=console.file, width=PLAIN_WIDTH)


def show_header(title: str, facts: Mapping[str, str], console: Console) -> None:
    """Prints a title, then a line for each fact: label and text."""
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text in facts.items():
        grid.add_row(Text(label), Text(text))
    console.print(Text(title, style="bold"))
    console.print(grid)
    console.print()


def show_table(table: Table, console: Console) -> None:
    """Prints a table with its title and notes."""
    console.print(drawn(table))
    console.print()


def drawn(table: Table) -> Group:
    """Draws a table with columns as narrow as their numbers and longest words allow."""
    shown = RichTable(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
    for position, name in enumerate(table.columns):
        is_text = position < table.text_columns
        cells = [row[position] for row in table.rows]
        parts = " ".join(cells).split() if is_text else cells
        # A column of remarks may have neither a name nor, in any row, a remark.
        width = max((1, *(len(part) for part in (*parts, *name.split()))))
        shown.add_column(
            Text("\n".join(wrap(name, width))),
            justify="left" if is_text else "right",
            vertical="bottom",
            min_width=min(width, LONGEST_WORD),
            no_wrap=not is_text,
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    parts_shown: list[RenderableType] = [Text(table.title, style="bold")] if table.title else []
    parts_shown += [shown] if table.rows else []
    return Group(*parts_shown, *(Text(note, style="dim") for note in table.notes))
