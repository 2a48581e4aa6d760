"""The records in a pipeline's folder, read."""

from dataclasses import dataclass
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.records.evaluations import read_pipeline_evaluations
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.record import read_record


@dataclass(frozen=True)
class PipelineFolder:
    """A trained pipeline as recorded; `evaluations` are the newest by folder of events."""

    folder: Path
    record: PipelineRecord
    evaluations: tuple[PipelineEvaluationRecord, ...]


def is_pipeline(folder: Path) -> bool:
    """Says whether a pipeline's training has come to its end in `folder`."""
    return (folder / PIPELINE).is_file()


def read_pipeline(folder: Path) -> PipelineFolder:
    """Reads a pipeline's folder.

    Raises:
        InputError: it holds no `pipeline.json`, or a record is of another format or broken.
    """
    if not is_pipeline(folder):
        raise InputError(f"{folder}: holds no {PIPELINE}; name folders of pipelines alone, or none")
    record = read_record(PipelineRecord, folder / PIPELINE)
    return PipelineFolder(folder, record, read_pipeline_evaluations(folder))
