"""The records in a run folder, written and read."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from bigtrk.config import parse
from bigtrk.disk.files import naming, open_to_append
from bigtrk.disk.json_lines import Line, read_lines
from bigtrk.errors import InputError
from bigtrk.records.evaluation import EvaluationRecord, read_evaluations
from bigtrk.records.metrics import EpochRecord, MetricsRecord, StepRecord, ValidationRecord
from bigtrk.records.record import Record, read_record, write_record
from bigtrk.records.run import BestRecord, RunRecord, read_best

RUN = "run.json"
METRICS = "metrics.jsonl"
EPOCH_LINE = b'"kind": "epoch"'  # in the lines of epochs, of which there are few
Kind = TypeVar("Kind", StepRecord, EpochRecord, ValidationRecord)


@dataclass(frozen=True)
class Run:
    """A run as recorded so far; steps and epochs ascend, each once. A run may have neither yet.

    `validations` are those between the ends of epochs; `evaluations` the newest by data folder;
    `best` the best epoch, if the run keeps one.
    """

    folder: Path
    record: RunRecord
    steps: tuple[StepRecord, ...]
    epochs: tuple[EpochRecord, ...]
    evaluations: tuple[EvaluationRecord, ...] = ()
    validations: tuple[ValidationRecord, ...] = ()
    best: BestRecord | None = None


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Writes `run.json`, atomically."""
    write_record(folder / RUN, record)


def read_run_record(folder: Path) -> RunRecord:
    """Reads `run.json`.

    Raises:
        InputError: it is missing, of another format, broken or incomplete.
    """
    return read_record(RunRecord, folder / RUN)


def append_metrics(folder: Path, record: MetricsRecord) -> None:
    """Adds a line to `metrics.jsonl`, whose format is that of the run's `run.json`.

    Raises:
        InputError: the file is a symbolic link.
    """
    path = folder / METRICS
    with naming(path), open_to_append(path) as lines:
        lines.write(json.dumps(record.model_dump(mode="json"), allow_nan=False) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


class MetricsLine(NamedTuple):
    """A line of `metrics.jsonl`: its bytes and its record."""

    raw: bytes
    record: MetricsRecord


def read_metrics(folder: Path) -> Iterator[MetricsLine]:
    """Reads the lines of `metrics.jsonl`; none where there is no such file yet.

    Raises:
        InputError: a line is broken or incomplete (file and line are named). A half-written last
            one, as a crash leaves it, is left aside.
    """
    path = folder / METRICS
    for line in read_lines(path) if path.exists() else ():
        yield MetricsLine(line.raw, metrics_record(line))


def read_run(folder: Path) -> Run:
    """Reads a run folder; after a resume the later line of a step or epoch is the one that counts.

    Raises:
        InputError: no folder, no `run.json`, a record of another format, broken or incomplete
            (file and line are named). A half-written last line of `metrics.jsonl`, as a crash
            leaves it, is left aside.
    """
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name the folder of a run, such as runs/0001")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name a run folder, such as runs/0001")
    if not (folder / RUN).is_file():
        raise InputError(f"{folder}: holds no {RUN}, so it is not the folder of a training run")
    record = read_run_record(folder)
    steps: dict[int, StepRecord] = {}
    epochs: dict[int, EpochRecord] = {}
    validations: dict[int, ValidationRecord] = {}
    for _, line in read_metrics(folder):
        match line:
            case StepRecord():
                steps[line.step] = line
            case EpochRecord():
                epochs[line.epoch] = line
            case ValidationRecord():
                validations[line.step] = line
    return Run(
        folder,
        record,
        _ascending(steps),
        _ascending(epochs),
        read_evaluations(folder),
        _ascending(validations),
        read_best(folder),
    )


def read_epochs(folder: Path) -> tuple[EpochRecord, ...]:
    """Reads the epochs of a run as `read_run` does, and no steps; none where there are none yet.

    Raises:
        InputError: the line of an epoch is broken or incomplete.
    """
    path = folder / METRICS
    found = map(metrics_record, read_lines(path, EPOCH_LINE) if path.exists() else ())
    return _ascending({one.epoch: one for one in found if isinstance(one, EpochRecord)})


def labels(runs: Sequence[Run]) -> list[str]:
    """Returns a short name per run: the folder's own, or its whole path where two share that."""
    return short_names([run.folder for run in runs])


def short_names(folders: Sequence[Path]) -> list[str]:
    """Returns the names of `labels`, of folders that need not be there."""
    names = [folder.resolve().name for folder in folders]
    return [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]


class _AnyLine(Record):
    kind: Literal["step", "epoch", "validation"]


def metrics_record(line: Line) -> MetricsRecord:
    """Makes the record of a line of `metrics.jsonl`.

    Raises:
        InputError: the line is incomplete, or says what no record can.
    """
    match parse(_AnyLine, line.content, line.place).kind:
        case "step":
            return parse(StepRecord, line.content, line.place)
        case "epoch":
            return parse(EpochRecord, line.content, line.place)
        case "validation":
            return parse(ValidationRecord, line.content, line.place)


def read_run_if_any(folder: Path) -> Run | None:
    """Reads a run folder, as `read_run` does; None where there is no run."""
    return read_run(folder) if (folder / RUN).is_file() else None


def _ascending(found: dict[int, Kind]) -> tuple[Kind, ...]:
    return tuple(found[key] for key in sorted(found))
