"""Reading a run folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bigtrk.config import parse
from bigtrk.disk.files import read_json
from bigtrk.disk.json_lines import read_lines
from bigtrk.errors import InputError
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.run import EpochRecord, RunRecord, StepRecord, ValidationRecord

RUN = "run.json"
METRICS = "metrics.jsonl"
EVALUATION = "evaluation.json"
Kind = TypeVar("Kind", StepRecord, EpochRecord, ValidationRecord)


@dataclass(frozen=True)
class Run:
    """A run as recorded so far; steps and epochs ascend, each once. A run may have neither yet.

    `validations` are those between the ends of epochs.
    """

    folder: Path
    record: RunRecord
    steps: tuple[StepRecord, ...]
    epochs: tuple[EpochRecord, ...]
    evaluation: EvaluationRecord | None
    validations: tuple[ValidationRecord, ...] = ()


def read_run(folder: Path) -> Run:
    """Read a run folder; after a resume the later line of a step or epoch is the one that counts.

    Raises:
        InputError: no folder, no `run.json`, a broken or incomplete record (file and line are
            named). A half-written last line of `metrics.jsonl`, as a crash leaves it, is left
            aside.
    """
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name the folder of a run, such as runs/0001")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name a run folder, such as runs/0001")
    if not (folder / RUN).is_file():
        raise InputError(f"{folder}: holds no {RUN}, so it is not the folder of a training run")
    record = parse(RunRecord, read_json(folder / RUN), str(folder / RUN))
    steps, epochs, validations = _read_metrics(folder / METRICS)
    evaluation = _read_evaluation(folder / EVALUATION)
    return Run(folder, record, steps, epochs, evaluation, validations)


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name per run: the folder's own, or its whole path where two share that."""
    names = [run.folder.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else str(run.folder)
        for name, run in zip(names, runs, strict=True)
    ]


def _read_evaluation(path: Path) -> EvaluationRecord | None:
    return parse(EvaluationRecord, read_json(path), str(path)) if path.exists() else None


Metrics = tuple[tuple[StepRecord, ...], tuple[EpochRecord, ...], tuple[ValidationRecord, ...]]


def _read_metrics(path: Path) -> Metrics:
    steps: dict[int, StepRecord] = {}
    epochs: dict[int, EpochRecord] = {}
    validations: dict[int, ValidationRecord] = {}
    for place, _, content in read_lines(path) if path.exists() else ():
        match content.get("kind"):
            case "step":
                step = parse(StepRecord, content, place)
                steps[step.step] = step
            case "epoch":
                epoch = parse(EpochRecord, content, place)
                epochs[epoch.epoch] = epoch
            case "validation":
                validation = parse(ValidationRecord, content, place)
                validations[validation.step] = validation
    return _ascending(steps), _ascending(epochs), _ascending(validations)


def _ascending(found: dict[int, Kind]) -> tuple[Kind, ...]:
    return tuple(found[key] for key in sorted(found))
