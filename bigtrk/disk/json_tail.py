"""The end of a file of a JSON object per line that another process writes, read as it grows."""

from collections.abc import Iterator
from pathlib import Path

from bigtrk.disk.files import check_file, disk_errors, naming
from bigtrk.disk.json_lines import LONGEST_LINE, Line, parse_line


class JsonTail:
    """Reads the lines that were added since the last look. The file may come later, be replaced or
    go; a last line without its end is left until it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end, self._number, self._last = 0, 0, b""

    def begins_anew(self) -> bool:
        """Says whether lines that were read are no longer there, so that all are to be read again:
        a run that is resumed drops those after its checkpoint.
        """
        if self._end == 0 or self._found() == self._last:
            return False
        self._end, self._number, self._last = 0, 0, b""
        return True

    def new_lines(self) -> Iterator[Line]:
        """Yields the whole lines after those already read; none where there is no file.

        Raises:
            InputError: the file cannot be read; or a line is too long or no JSON object, and is
                read again by the next call.
        """
        if not self._path.exists():
            return
        check_file(self._path)
        with disk_errors(), naming(self._path), self._path.open("rb") as handle:
            handle.seek(self._end)
            while raw := handle.readline(LONGEST_LINE + 1):
                is_whole = raw.endswith(b"\n")
                if not is_whole and len(raw) <= LONGEST_LINE:
                    return
                line = parse_line(self._path, self._number + 1, raw)
                if line is not None:
                    yield line
                # A line that whoever asks for it refuses has not been read.
                self._end, self._number = self._end + len(raw), self._number + 1
                self._last = raw

    def _found(self) -> bytes:
        """Returns what is where the last line was read."""
        if not self._path.is_file():
            return b""
        with disk_errors(), naming(self._path), self._path.open("rb") as handle:
            handle.seek(self._end - len(self._last))
            return handle.read(len(self._last))
