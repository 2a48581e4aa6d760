"""`pipeline.json`, which lists the stages from hits to tracks; and a pipeline's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from bigtrk.errors import InputError, shell_word
from bigtrk.records.evaluation import PipelineEvaluationRecord, read_evaluations
from bigtrk.records.record import (
    MOST,
    FileRecord,
    Measure,
    Ratio,
    Record,
    Text,
    read_if_any,
    read_record,
)
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import RUN, check_run

PIPELINE = "pipeline.json"


class ThresholdPoint(Record):
    """Rates of the tracks above a threshold of quality; None if the denominator is 0."""

    threshold: Ratio
    efficiency: Ratio | None
    fake_rate: Ratio | None


class ThresholdRecord(Record):
    """The threshold of track quality chosen for a fake rate `fakes`, on held-back events."""

    threshold: Ratio
    fakes: Ratio
    scan: tuple[ThresholdPoint, ...] = Field((), max_length=MOST)


class PipelineRecord(FileRecord):
    """`pipeline.json`, next to the folders of the stages' runs. radius: hits closer than this in
    the embedding are joined. cut: the filter's least score of an edge. weights: digests of the
    stages' weights. quality: how the merge tree's threshold was chosen, if it was.
    """

    made_again: ClassVar[str] = "run 'bigtrk pipeline train EVENTS OUT' again"

    format: Literal[1] = 1
    radius: Measure
    cut: Ratio
    weights: dict[Text, Text]
    quality: ThresholdRecord | None = None


TRAINED = ("embedding", "filter", "classifier")  # stages that are runs


@dataclass(frozen=True)
class PipelineFolder:
    """A trained pipeline: its record, newest evaluations, and stages' runs by folder name."""

    folder: Path
    record: PipelineRecord
    evaluations: tuple[PipelineEvaluationRecord, ...]
    stages: dict[str, RunRecord]

    @property
    def name(self) -> str:
        """Returns the name of the pipeline's folder."""
        return self.folder.resolve().name


def is_pipeline(folder: Path) -> bool:
    """Whether `folder` holds a fully trained pipeline."""
    return (folder / PIPELINE).is_file()


def check_is_run(folder: Path) -> None:
    """Raises InputError, with what to name instead, unless a folder holds a run."""
    check_no_pipeline(folder)
    check_run(folder)


def check_no_pipeline(folder: Path) -> None:
    """Raises InputError, with commands, for a pipeline's folder, even a half-trained one."""
    if (folder / PIPELINE).exists() or (folder / f"{TRAINED[0]}.json").exists():
        named = shell_word(folder)
        raise InputError(
            f"{folder}: is a pipeline, not a run; 'bigtrk pipeline train EVENTS {named}' continues "
            f"it, 'bigtrk reconstruct {named} EVENTS OUT' makes tracks; or name the run of a "
            f"stage, such as {folder / TRAINED[-1]}"
        )


def read_pipeline(folder: Path) -> PipelineFolder:
    if not is_pipeline(folder):
        raise InputError(f"{folder}: holds no {PIPELINE}; name only pipelines, or only runs")
    record = read_record(PipelineRecord, folder / PIPELINE)
    found = {name: read_if_any(RunRecord, folder / name / RUN) for name in TRAINED}
    stages = {name: run for name, run in found.items() if run}
    return PipelineFolder(
        folder, record, read_evaluations(PipelineEvaluationRecord, folder), stages
    )
