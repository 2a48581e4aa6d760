"""The records in a pipeline's folder, read."""

from dataclasses import dataclass
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.records.evaluations import read_pipeline_evaluations
from bigtrk.records.pipeline import PIPELINE, PipelineRecord
from bigtrk.records.pipeline_evaluation import PipelineEvaluationRecord
from bigtrk.records.record import read_record
from bigtrk.records.run import RunRecord
from bigtrk.records.run_folder import RUN, read_run_record

TRAINED = ("embedding", "filter", "classifier")  # stages that are runs


@dataclass(frozen=True)
class PipelineFolder:
    """A trained pipeline as recorded; `evaluations` are the newest by folder of events, `stages`
    the records of the trainings beside it, by the names of their folders.
    """

    folder: Path
    record: PipelineRecord
    evaluations: tuple[PipelineEvaluationRecord, ...]
    stages: dict[str, RunRecord]

    @property
    def name(self) -> str:
        """Returns the name of its folder."""
        return self.folder.resolve().name


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
    known = [name for name in TRAINED if (folder / name / RUN).is_file()]
    stages = {name: read_run_record(folder / name) for name in known}
    return PipelineFolder(folder, record, read_pipeline_evaluations(folder), stages)
