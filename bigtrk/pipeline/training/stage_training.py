"""The training of one stage: begun, continued, or kept where it is done already."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import yaml

from bigtrk.config import parse
from bigtrk.console import say
from bigtrk.disk.files import disk_errors, write_atomically
from bigtrk.errors import InputError
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.pipeline.training.settings import PipelineSettings
from bigtrk.records.record import FileRecord, Text, read_record, write_record
from bigtrk.records.run_folder import RUN, read_run_record
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import resumable, train_logged
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS, remove_run
from bigtrk.training.settings import Configuration
from bigtrk.user_code import code_options


class StageRecord(FileRecord):
    """`STAGE.json`: graphs is the digest of those that a stage is trained on."""

    made_again: ClassVar[str] = "remove it and the run beside it"

    format: Literal[1] = 1
    graphs: Text


def train_stage(
    stage: str, settings: PipelineSettings, graphs: Path, out: Path, launcher: Sequence[str]
) -> None:
    """Trains a stage on folder `graphs` in the run folder `out`/`stage`.

    Raises:
        InputError: the run there is of other settings or graphs, or the training failed.
    """
    run, file, about = out / stage, out / f"{stage}.yaml", out / f"{stage}.json"
    digest = graphs_digest(graphs)
    content = settings.content(stage, graphs, run)
    if (run / RUN).exists():
        if about.exists() and read_record(StageRecord, about).graphs != digest:
            raise InputError(
                f"{run}: was trained on other graphs than {graphs} holds now; remove it, to train "
                f"it again, or restore the events and the stages before"
            )
        _check_settings(run, content)
    if (run / WEIGHTS).exists() and (run / DESCRIPTION).exists():
        say(f"{run}: is trained")
        return
    if resumable(run):
        arguments = ["--resume", str(run), *code_options()]
    else:
        if run.exists():
            # It ended before its first checkpoint, or after its last.
            remove_run(run)
        with disk_errors():
            write_atomically(file, lambda path: path.write_text(yaml.safe_dump(content)))
            write_record(about, StageRecord(graphs=digest))
        arguments = [str(file)]
    train_logged([*launcher, str(TRAIN), *arguments], out / f"{stage}.log", os.environ)


def graphs_digest(graphs: Path) -> str:
    """Returns a digest of the names and contents of a folder's graphs."""
    folder = GraphFolder(graphs)
    facts = repr([(event, folder.record(event)["digests"]) for event in folder.events])
    return hashlib.sha256(facts.encode()).hexdigest()


def _check_settings(run: Path, content: dict[str, dict[str, object]]) -> None:
    """Refuses a run of other settings; where its folders are is no matter, so that it can move."""
    wanted = Configuration.model_validate(content).model_dump(mode="json")
    # Settings that came after the run have their defaults there.
    trained = parse(Configuration, read_run_record(run).config, str(run / RUN))
    found = trained.model_dump(mode="json")
    for settings in (wanted, found):
        settings["data"]["train"] = settings["run"]["folder"] = None
    differ = [key for key in wanted if wanted[key] != found[key]]
    if differ:
        raise InputError(
            f"{run}: was trained with other settings of {', '.join(differ)}; remove it, to train "
            f"it again, or restore PIPELINE.yaml"
        )
