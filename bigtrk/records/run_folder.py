"""Writes and reads the records in a run folder."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from bigtrk.config import parse
from bigtrk.disk.files import naming, open_to_append
from bigtrk.disk.json_lines import Line, read_lines
from bigtrk.errors import InputError, shell_word
from bigtrk.records.evaluation import EvaluationRecord, read_evaluations
from bigtrk.records.metrics import (
    EpochRecord,
    MetricsRecord,
    StepRecord,
    ValidationRecord,
    place_of,
)
from bigtrk.records.record import Record, read_if_any, read_record, write_record
from bigtrk.records.run import BEST, BestRecord, RunRecord

RUN = "run.json"
METRICS = "metrics.jsonl"
_EPOCH_LINE = b'"kind": "epoch"'  # in the lines of epochs, of which there are few
Kind = TypeVar("Kind", StepRecord, EpochRecord, ValidationRecord)


@dataclass(frozen=True)
class Run:
    """A run as recorded so far. steps, epochs and validations (within epochs) ascend, each listed
    once. evaluations: the newest for each data folder. best: the best epoch, if the run keeps one.
    """

    folder: Path
    record: RunRecord
    steps: tuple[StepRecord, ...]
    epochs: tuple[EpochRecord, ...]
    evaluations: tuple[EvaluationRecord, ...] = ()
    validations: tuple[ValidationRecord, ...] = ()
    best: BestRecord | None = None

    @property
    def step(self) -> int:
        """Returns the number of steps recorded."""
        return self.steps[-1].step + 1 if self.steps else 0


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Writes `run.json`, atomically."""
    write_record(folder / RUN, record)


def read_run_record(folder: Path) -> RunRecord:
    """Reads `run.json`; raises InputError as `read_record`."""
    return read_record(RunRecord, folder / RUN)


def append_metrics(folder: Path, record: MetricsRecord) -> None:
    """Adds a line to `metrics.jsonl`; InputError if that is a symbolic link."""
    path = folder / METRICS
    with naming(path), open_to_append(path) as lines:
        lines.write(json.dumps(record.model_dump(mode="json"), allow_nan=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def read_metrics(folder: Path) -> Iterator[tuple[bytes, MetricsRecord]]:
    """Yields each line of `metrics.jsonl`, if it exists, and its record; raises as `read_lines`."""
    path = folder / METRICS
    for line in read_lines(path) if path.exists() else ():
        yield line.raw, metrics_record(line)


def read_run(folder: Path) -> Run:
    """Reads all records in a run folder. If a resumed run recorded a step or epoch twice, the later
    line counts. Raises InputError if there is no run, or a record has another format or is broken.
    """
    if not (folder / RUN).is_file():
        if any(folder.glob("*-tracks.parquet")):
            judge = f"bigtrk score {shell_word(folder)} EVENTS"
            raise InputError(f"{folder}: holds tracks, not a run; '{judge}' judges them")
        check_run(folder)
    lines = [record for _, record in read_metrics(folder)]
    return Run(
        folder,
        read_run_record(folder),
        _newest(StepRecord, lines),
        _newest(EpochRecord, lines),
        read_evaluations(EvaluationRecord, folder),
        _newest(ValidationRecord, lines),
        read_if_any(BestRecord, folder / BEST),
    )


def check_run(folder: Path) -> None:
    """Raises InputError, with what to name instead, unless a folder holds a run."""
    if (folder / RUN).is_file():
        return
    found = f"holds no {RUN}, so it is not the folder of a training run"
    if not folder.is_dir():
        found = "is a file" if folder.is_file() else "no such folder"
    raise InputError(f"{folder}: {found}; name the folder of a run, such as runs/0001")


def read_epochs(folder: Path) -> tuple[EpochRecord, ...]:
    """Reads only the epochs of a run, as `read_run` does; () if there are none yet."""
    path = folder / METRICS
    found = map(metrics_record, read_lines(path, _EPOCH_LINE) if path.exists() else ())
    return _newest(EpochRecord, found)


def _newest(kind: type[Kind], lines: Iterable[MetricsRecord]) -> tuple[Kind, ...]:
    found = {place_of(line): line for line in lines if isinstance(line, kind)}
    return tuple(found[place] for place in sorted(found))


def labels(runs: Sequence[Run]) -> list[str]:
    return short_names([run.folder for run in runs])


def short_names(folders: Sequence[Path]) -> list[str]:
    """Returns each folder's name, or its whole path if another folder has the same name."""
    names = [folder.resolve().name for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]


class _AnyLine(Record):
    kind: Literal["step", "epoch", "validation"]


_REMEDY = "remove the line"
KINDS: dict[str, type[MetricsRecord]] = {
    kind.model_fields["kind"].default: kind for kind in (StepRecord, EpochRecord, ValidationRecord)
}


def metrics_record(line: Line) -> MetricsRecord:
    """Parses the record in a line of `metrics.jsonl`; InputError if it is not valid."""
    kind = KINDS[parse(_AnyLine, line.content, line.place, remedy=_REMEDY).kind]
    return parse(kind, line.content, line.place, remedy=_REMEDY)


def read_run_if_any(folder: Path) -> Run | None:
    """Reads a run folder like `read_run`; None if it holds no run."""
    return read_run(folder) if (folder / RUN).is_file() else None
