"""`evaluations/` of a run's or a pipeline's folder: a file of each, which nothing overwrites."""

import re
from contextlib import suppress
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import TypeVar

from bigtrk.disk.files import unlinked, write_new_json
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.record import read_record

EVALUATIONS = "evaluations"
LONGEST_NAME = 100  # letters: file systems take 255, and a temporary file's name has more
Kind = TypeVar("Kind", EvaluationRecord, PipelineEvaluationRecord)


def write_evaluation(evaluated: Path, record: EvaluationRecord | PipelineEvaluationRecord) -> Path:
    """Writes a record, atomically, to a new file in the folder of the run or pipeline that was
    evaluated; returns its path.

    It has the name of the data folder and the time in UTC: `graphs-20261122T064105Z.json`, and a
    number where that is taken.

    Raises:
        InputError: `evaluations` is a symbolic link.
        OSError: the disk refuses.
    """
    folder = unlinked(evaluated / EVALUATIONS)
    folder.mkdir(exist_ok=True)
    numbers = count(2)
    path = folder / f"{_stem(record)}.json"
    while True:
        with suppress(FileExistsError):
            write_new_json(path, record.model_dump(mode="json"))
            return path
        path = folder / f"{_stem(record)}-{next(numbers)}.json"


def read_evaluations(run: Path) -> tuple[EvaluationRecord, ...]:
    """Reads a run's newest evaluation on each data folder, in the order of these folders.

    Raises:
        InputError: a file is of another format, broken, or says what no evaluation can; names it.
    """
    return _newest(EvaluationRecord, run)


def read_pipeline_evaluations(pipeline: Path) -> tuple[PipelineEvaluationRecord, ...]:
    """Reads a pipeline's newest evaluation on each folder of events, as `read_evaluations`."""
    return _newest(PipelineEvaluationRecord, pipeline)


def _newest(kind: type[Kind], evaluated: Path) -> tuple[Kind, ...]:
    newest: dict[str, Kind] = {}
    for path in sorted((evaluated / EVALUATIONS).glob("*.json")):
        record = read_record(kind, path)
        known = newest.get(record.data)
        if known is None or known.made <= record.made:
            newest[record.data] = record
    return tuple(newest[data] for data in sorted(newest))


def _stem(record: EvaluationRecord | PipelineEvaluationRecord) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(record.data).name)[:LONGEST_NAME]
    return f"{name}-{record.made.astimezone(UTC):%Y%m%dT%H%M%SZ}"
