"""The parts of a page: one file with its style, script and figures, which needs nothing else."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from plotly import __version__ as plotly_version
from plotly.offline import get_plotlyjs

from bigtrk import __version__
from bigtrk.disk.files import write_atomically
from bigtrk.errors import printable_lines
from bigtrk.reports.elements.charts import theme
from bigtrk.reports.elements.layout import Table


def write_page(path: Path, title: str, first: str, plots: Iterable[str], tables: str) -> None:
    """Writes `make_page` of these parts to `path`, atomically."""
    page = make_page(title, first, plots, tables)
    write_atomically(path, lambda temporary: temporary.write_text(page, "utf-8"))


def make_page(
    title: str, first: str, plots: Iterable[str], tables: str = "", script: str = ""
) -> str:
    """Makes a page of these parts, all but the title HTML.

    first: what stands above the plots. plots, tables: with figures, which are drawn when they come
    into view. script: of a page that asks the server it is from; others ask for nothing.
    """
    template = Template(files("bigtrk.reports.elements").joinpath("page.html").read_text("utf-8"))
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, bigtrk {__version__}, plotly {plotly_version}"
    # Names of files may hold halves of characters, which no encoding knows.
    shown = {
        "title": printable_lines(escape(title)),
        "first": printable_lines(first),
        "plots": printable_lines("".join(plots)),
        "tables": printable_lines(tables),
    }
    return template.substitute(
        shown,
        made=f"Made {made}.",
        theme=theme(),
        plotly=_plotly(),
        connects=" connect-src 'self';" if script else "",
        script=f"<script>{script}</script>" if script else "",
    )


@cache
def _plotly() -> str:
    """Returns the script of plotly, 4.8 MB."""
    script: str = get_plotlyjs()
    return script


def header(title: str, facts: dict[str, str]) -> str:
    """Makes a section of labels and texts."""
    pairs = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in facts.items())
    return f"<section><h2>{escape(title)}</h2><dl>{pairs}</dl></section>"


def plots_section(title: str, plots: Iterable[str], notes: Iterable[str] = ()) -> str:
    """Makes a section of plots, with notes above them; "" without any plot."""
    drawn = "".join(plots)
    told = "".join(f"<p>{escape(note)}</p>" for note in notes)
    head = f"<h2>{escape(title)}</h2>{told}"
    return f'<section>{head}<div class="plots">{drawn}</div></section>' if drawn else ""


def table_section(table: Table, figure: str = "", links: Sequence[str] = ()) -> str:
    """Makes a section of a table, its figure above and its notes below it. links: an address for
    the first cell of each row, if they have any.
    """
    head = "".join(_cell("th", i, x, table) for i, x in enumerate(table.columns))
    rows = (
        "<tr>"
        + "".join(_cell("td", i, x, table, link if i == 0 else "") for i, x in enumerate(row))
        + "</tr>"
        for row, link in zip(table.rows, links or [""] * len(table.rows), strict=True)
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    shown = f'<div class="wide">{body}</div>' if table.rows else ""
    return f"<section><h2>{escape(table.title)}</h2>{figure}{shown}{notes}</section>"


def _cell(tag: str, position: int, text: str, table: Table, link: str = "") -> str:
    kind = ' class="text"' if position < table.text_columns else ""
    shown = f'<a href="{escape(link)}">{escape(text)}</a>' if link else escape(text)
    return f"<{tag}{kind}>{shown}</{tag}>"
