"""`evaluations/` of a run's folder: a file of each evaluation, which nothing overwrites."""

import re
from contextlib import suppress
from datetime import UTC
from itertools import count
from pathlib import Path

from bigtrk.disk.files import unlinked, write_new_json
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.record import read_record

EVALUATIONS = "evaluations"
LONGEST_NAME = 100  # letters: file systems take 255, and a temporary file's name has more


def write_evaluation(run: Path, record: EvaluationRecord) -> Path:
    """Writes a record, atomically, to a new file in the run's folder; returns its path.

    It has the name of the data folder and the time in UTC: `graphs-20261122T064105Z.json`, and a
    number where that is taken.

    Raises:
        InputError: `evaluations` is a symbolic link.
        OSError: the disk refuses.
    """
    folder = unlinked(run / EVALUATIONS)
    folder.mkdir(exist_ok=True)
    numbers = count(2)
    path = folder / f"{_stem(record)}.json"
    while True:
        with suppress(FileExistsError):
            write_new_json(path, record.model_dump(mode="json"))
            return path
        path = folder / f"{_stem(record)}-{next(numbers)}.json"


def read_evaluations(run: Path) -> tuple[EvaluationRecord, ...]:
    """Reads the newest evaluation on each data folder, in the order of these folders.

    Raises:
        InputError: a file is of another format, broken, or says what no evaluation can; names it.
    """
    newest: dict[str, EvaluationRecord] = {}
    for path in sorted((run / EVALUATIONS).glob("*.json")):
        record = read_record(EvaluationRecord, path)
        known = newest.get(record.data)
        if known is None or known.made <= record.made:
            newest[record.data] = record
    return tuple(newest[data] for data in sorted(newest))


def _stem(record: EvaluationRecord) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(record.data).name)[:LONGEST_NAME]
    return f"{name}-{record.made.astimezone(UTC):%Y%m%dT%H%M%SZ}"
