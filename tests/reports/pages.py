"""Reports as they are read: in a terminal; as pages, with their tags, texts and figures."""

import io
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rich.console import Console

from bigtrk.reports.document import Document
from bigtrk.reports.terminal import show

VOID = {"meta", "link", "br", "img"}


def printed(document: Document) -> str:
    """Returns a report as it is printed elsewhere than on a terminal, at most 100 wide."""
    out = io.StringIO()
    show(document, Console(file=out))
    assert max(map(len, map(str.rstrip, out.getvalue().splitlines()))) <= 100
    return out.getvalue()


def row_of(text: str, table: str, first: str) -> list[str]:
    """The cells of the row of `table` that starts with `first`, split at two or more spaces."""
    lines = iter(text.splitlines())
    next(line for line in lines if line.strip() == table)
    row = next(line for line in lines if line.strip().startswith(f"{first} "))
    return [cell.strip() for cell in row.split("  ") if cell.strip()]


@dataclass(frozen=True)
class Figure:
    """A figure of a page, as it is handed to plotly's script."""

    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]

    def trace(self, name: str) -> dict[str, Any]:
        """Returns the only trace of that name."""
        [found] = [trace for trace in self.data if trace.get("name") == name]
        return found


@dataclass
class Script:
    """A script's attributes and text."""

    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page:
    """A page's parts: tags in order, texts outside of scripts and style, scripts, links to
    elsewhere.
    """

    tags: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    @property
    def figures(self) -> list[Figure]:
        """Lists the figures, in the page's order."""
        made = [script for script in self.scripts if script.attributes.get("type")]
        contents = [json.loads(script.text) for script in made if "id" not in script.attributes]
        return [
            Figure(label, content["data"], content["layout"])
            for label, content in zip(self.labels, contents, strict=True)
        ]

    def figure(self, title: str) -> Figure:
        """Returns the only figure of that title."""
        [found] = [figure for figure in self.figures if figure.title == title]
        return found


class _Reader(HTMLParser):
    """Collects what a page has, and fails on an element that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page, known = self.page, dict(attrs)
        page.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            page.scripts.append(Script(known))
        if known.get("class") == "plot":
            page.labels.append(known["aria-label"] or "")
        page.references += [known[name] or "" for name in ("src", "href", "data") if name in known]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.page.scripts[-1].text += data
        elif self.open[-1:] != ["style"]:
            self.page.texts.append(data)


def parsed(path: Path) -> Page:
    """Reads a page, whose elements are all closed."""
    reader = _Reader()
    reader.feed(path.read_text("utf-8"))
    reader.close()
    assert not reader.open
    return reader.page


def self_contained(path: Path) -> Page:
    """Reads a page, which holds plotly once, and asks for nothing from elsewhere."""
    page = parsed(path)
    assert not page.references
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    style = re.findall(r"<style>.*?</style>", path.read_text("utf-8")[:100_000], re.DOTALL)
    assert not re.search(r"url\(|@import|https?:", "".join(style))
    libraries = [script for script in page.scripts if "plotly.js v" in script.text[:1000]]
    assert len(libraries) == 1
    assert len([script for script in page.scripts if not script.attributes]) == 2
    assert path.stat().st_size < 12e6
    return page
