"""Markdown of texts from anywhere, which hold no markup of their own."""

import re
from collections.abc import Iterable, Sequence

from bigtrk.errors import printable

_MEANING = {c: f"\\{c}" for c in "\\`*_[]|~$#"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED = str.maketrans(_MEANING)
# What GitHub makes links of by itself: addresses of pages and of people.
_LINKED = re.compile(r"(?<=:)//|(?<=www)\.|@", re.IGNORECASE)


def escaped(text: str) -> str:
    """Writes a text in one line that shows as it is: its Markdown and HTML are shown, too."""
    line = " ".join(printable(text).split())
    return _LINKED.sub(lambda m: f"&#{ord(m[0][0])};{m[0][1:]}", line.translate(_ESCAPED))


def heading(text: str, level: int = 2) -> str:
    return f"{'#' * level} {escaped(text)}"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Writes a list of labels and texts; none of what is not known ("" or a dash)."""
    return "\n".join(
        f"- **{escaped(label)}**: {escaped(text)}" for label, text in pairs if text not in ("", "-")
    )


def points(texts: Iterable[str]) -> str:
    """Writes a list of sentences."""
    return "\n".join(f"- {escaped(text)}" for text in texts)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Writes a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    head, rule, *body = ("| " + " | ".join(map(escaped, line)) + " |" for line in lines)
    return "\n".join((head, rule, *body))


def code(language: str, *lines: str) -> str:
    """Writes lines of code, which are our own."""
    return "\n".join((f"```{language}", *lines, "```"))
