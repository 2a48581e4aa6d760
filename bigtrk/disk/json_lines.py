"""Reads files with a JSON object per line, such as a run's metrics, also while they grow."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bigtrk.disk.files import check_file, checked, disk_errors, naming
from bigtrk.errors import InputError, reason

LONGEST_LINE = 16 << 20  # bytes; a step names each of its events
MOST_LINES = 1 << 22  # steps of a training, which a reader keeps


class Line(NamedTuple):
    """A line: place ("FILE, line N"), bytes, and the object in them; its numbers may be NaN."""

    place: str
    raw: bytes
    content: dict[str, Any]


def read_lines(path: Path, holding: bytes = b"") -> Iterator[Line]:
    """Yields the lines that contain `holding`; skips blank ones and a half-written last one."""
    check_file(path)
    with disk_errors(), naming(path), path.open("rb") as handle:
        number = 0
        while raw := handle.readline(LONGEST_LINE + 1):
            number += 1
            if holding in raw and (line := _parsed(path, number, raw)):
                yield line


def _parsed(path: Path, number: int, raw: bytes) -> Line | None:
    """Parses one line; None if it is blank or half-written, InputError if too long or no JSON."""
    place = f"{path}, line {number}"
    if number > MOST_LINES:
        raise InputError(f"{path}: has more than {MOST_LINES:,} lines; remove its oldest lines")
    if len(raw) > LONGEST_LINE:
        raise InputError(f"{place}: is longer than {LONGEST_LINE >> 20} MiB; remove the line")
    if not raw.strip():
        return None
    try:
        content = checked(json.loads(raw))
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            return None
        raise InputError(f"{place}: is not valid JSON ({reason(error)}); remove the line") from None
    if not isinstance(content, dict):
        raise InputError(f"{place}: is not a JSON object, such as {{...}}; remove the line")
    return Line(place, raw, content)


class JsonTail:
    """Reads the lines added to a file since the last look; the file may appear, change or go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end, self._number, self._last = 0, 0, b""

    def begins_anew(self) -> bool:
        """Whether lines already read have gone, as in a resumed run; then all are read again."""
        found = b""
        if self._path.is_file():
            with disk_errors(), naming(self._path), self._path.open("rb") as handle:
                handle.seek(self._end - len(self._last))
                found = handle.read(len(self._last))
        if self._end == 0 or found == self._last:
            return False
        self._end, self._number, self._last = 0, 0, b""
        return True

    def new_lines(self) -> Iterator[Line]:
        """Yields the whole lines not yet read. A line that raised InputError is read again."""
        if not self._path.exists():
            return
        check_file(self._path)
        with disk_errors(), naming(self._path), self._path.open("rb") as handle:
            handle.seek(self._end)
            while raw := handle.readline(LONGEST_LINE + 1):
                if not raw.endswith(b"\n") and len(raw) <= LONGEST_LINE:
                    return
                if line := _parsed(self._path, self._number + 1, raw):
                    yield line
                self._end, self._number = self._end + len(raw), self._number + 1
                self._last = raw
