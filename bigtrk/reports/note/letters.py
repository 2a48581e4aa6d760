"""Text on paper: written in letters that the font has, measured, wrapped and cut.

Lengths are in points.
"""

from bisect import bisect_left
from functools import cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path

from bigtrk.errors import printable

FAMILY = "DejaVu Sans"  # comes with matplotlib
CUT = "…"


def printed(text: str) -> str:
    """Writes text in one line; characters that are not printable, or that the font lacks, are
    escaped as Python does.
    """
    known = _characters()
    return "".join(c if ord(c) in known else ascii(c)[1:-1] for c in printable(text))


def width(text: str, size: float, bold: bool = False) -> float:
    """Measures a printed text."""
    found: float = text_to_path.get_text_width_height_descent(
        text, _font(size, bold), ismath=False
    )[0]
    return found


def cut(text: str, room: float, size: float, bold: bool = False) -> str:
    """Prints a text so that it fits into `room`, with an ellipsis for what does not."""
    line = printed(text)
    return line if width(line, size, bold) <= room else _start(line, room, size, bold, CUT)


def wrapped(
    text: str, room: float, size: float, bold: bool = False, most: int | None = None
) -> list[str]:
    """Prints a text in lines that fit into `room`, the last of at most `most` with an ellipsis if
    there are more. Words that are too long for a line are broken anywhere.
    """
    lines = [""]
    for word in printed(text).split():
        joined = f"{lines[-1]} {word}".strip()
        if width(joined, size, bold) <= room:
            lines[-1] = joined
            continue
        rest = word
        if lines[-1]:
            lines.append("")
        while width(rest, size, bold) > room:
            lines[-1] = _start(rest, room, size, bold)
            rest = rest[len(lines[-1]) :]
            lines.append("")
        lines[-1] = rest
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], _start(lines[most - 1] + " ", room, size, bold, CUT)]


def _start(line: str, room: float, size: float, bold: bool, end: str = "") -> str:
    """Returns as many of the first letters of a line, at least one, as fit with `end` behind."""
    too_long = bisect_left(
        range(1, len(line)), True, key=lambda n: width(line[:n] + end, size, bold) > room
    )
    return line[: max(1, too_long)].rstrip() + end


@cache
def _font(size: float, bold: bool) -> FontProperties:
    return FontProperties(family=FAMILY, size=size, weight="bold" if bold else "normal")


@cache
def _characters() -> frozenset[int]:
    charmaps = [get_font(findfont(_font(10, bold))).get_charmap() for bold in (False, True)]
    return frozenset(charmaps[0].keys() & charmaps[1].keys())
