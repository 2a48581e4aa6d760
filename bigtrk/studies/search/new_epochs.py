"""The epochs of a run as they come, from its own record, while another process writes that."""

import os
from pathlib import Path

from bigtrk.config import parse
from bigtrk.disk.files import parse_json
from bigtrk.errors import InputError, reason
from bigtrk.records.metrics import EpochRecord
from bigtrk.records.run_folder import EPOCH_LINE, METRICS


class NewEpochs:
    """Reads what a run has added to its `metrics.jsonl` since the last look."""

    def __init__(self, run: Path) -> None:
        self._path = run / METRICS
        self._file: int | None = None
        self._read = 0
        self.last = -1  # the latest epoch that was returned, counted from 0

    def look(self) -> list[EpochRecord]:
        """Returns the epochs that were not returned yet, in their order. What a resumed run trains
        again is not returned again.

        Raises:
            InputError: a line is broken.
        """
        found = [epoch for epoch in map(self._parsed, self._lines()) if epoch.epoch > self.last]
        self.last = max([self.last, *(epoch.epoch for epoch in found)])
        return found

    def _lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as handle:
                file = os.fstat(handle.fileno()).st_ino
                if file != self._file:  # a resumed run has written it anew
                    self._file, self._read = file, 0
                handle.seek(self._read)
                whole = handle.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read += len(whole) + bool(whole)
        return [line for line in whole.split(b"\n") if EPOCH_LINE in line]

    def _parsed(self, line: bytes) -> EpochRecord:
        try:
            content = parse_json(line.decode())
        except ValueError as error:
            raise InputError(f"{self._path}: not JSON ({reason(error)})") from None
        return parse(EpochRecord, content, str(self._path))
