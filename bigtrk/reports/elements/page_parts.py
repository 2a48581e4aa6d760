"""The parts of a page: inline style, inline SVG, no script."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from bigtrk.disk.files import write_atomically
from bigtrk.errors import printable_lines
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.elements.plots import COLOURS


def write_page(path: Path, title: str, headers: str, legend: str, plots: str, tables: str) -> None:
    """Writes a page of these parts, all but the title HTML, to `path`, atomically."""
    template = Template(files("bigtrk.reports.elements").joinpath("page.html").read_text("utf-8"))
    page = template.substitute(
        title=escape(title), headers=headers, legend=legend, plots=plots, tables=tables
    )
    # Names of files may hold halves of characters, which no encoding knows.
    shown = printable_lines(page)
    write_atomically(path, lambda temporary: temporary.write_text(shown, "utf-8"))


def header(title: str, facts: dict[str, str]) -> str:
    """Makes a section of labels and texts."""
    pairs = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts.items())
    return f"<section><h2>{escape(title)}</h2><dl>{pairs}</dl></section>"


def legend(names: Sequence[str]) -> str:
    """Says what each colour stands for."""
    items = (
        f'<span class="key"><i class="s{index % COLOURS}"></i>{escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def table_section(table: Table, figure: str = "") -> str:
    """Makes a section of a table, its figure above and its notes below it."""
    head = "".join(_cell("th", i, x, table) for i, x in enumerate(table.columns))
    rows = (
        "<tr>" + "".join(_cell("td", i, x, table) for i, x in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    shown = f'<div class="wide">{body}</div>' if table.rows else ""
    return f"<section><h2>{escape(table.title)}</h2>{figure}{shown}{notes}</section>"


def _cell(tag: str, position: int, text: str, table: Table) -> str:
    kind = ' class="text"' if position < table.text_columns else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"
