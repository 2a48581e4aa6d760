"""Files of a JSON object per line, as a run's metrics are, read line by line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bigtrk.disk.files import check_file, disk_errors, naming
from bigtrk.disk.json_values import checked
from bigtrk.errors import InputError, reason

LONGEST_LINE = 16 << 20  # bytes; a step names each of its events
MOST_LINES = 1 << 22  # steps of a training, which a reader keeps


class Line(NamedTuple):
    """A line: its place, for messages; its bytes; and the object in them. Numbers may be NaN."""

    place: str
    raw: bytes
    content: dict[str, Any]


def read_lines(path: Path, holding: bytes = b"") -> Iterator[Line]:
    """Yields the lines of a file that hold these bytes, except blank ones and a last line that a
    crash left half-written.

    Raises:
        InputError: the file is missing or cannot be read; or a line is too long or no JSON object.
    """
    check_file(path)
    for number, raw in enumerate(_raw_lines(path), start=1):
        if holding in raw and (line := parse_line(path, number, raw)):
            yield line


def parse_line(path: Path, number: int, raw: bytes) -> Line | None:
    """Parses a line of a file, of which at most `LONGEST_LINE` + 1 bytes were read; returns None
    for one that is blank or half-written.

    Raises:
        InputError: it is one too many, too long, or no JSON object.
    """
    place = f"{path}, line {number}"
    if number > MOST_LINES:
        raise InputError(f"{path}: has more than {MOST_LINES} lines; cut off the first ones")
    if len(raw) > LONGEST_LINE:
        raise InputError(f"{place}: is longer than {LONGEST_LINE >> 20} MiB; remove the line")
    content = _object(raw, place) if raw.strip() else None
    return None if content is None else Line(place, raw, content)


def _raw_lines(path: Path) -> Iterator[bytes]:
    with disk_errors(), naming(path), path.open("rb") as handle:
        while raw := handle.readline(LONGEST_LINE + 1):
            yield raw


def _object(raw: bytes, place: str) -> dict[str, Any] | None:
    """Parses a line; returns None for one that is half-written."""
    try:
        content = checked(json.loads(raw))
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            return None
        raise InputError(f"{place}: not JSON ({reason(error)}); remove the line") from None
    if not isinstance(content, dict):
        raise InputError(f"{place}: not a JSON object; remove the line")
    return content
