"""The writer of a run: rank 0's, which alone changes the run's folder while it holds the lock."""

import shutil
from contextlib import ExitStack
from pathlib import Path

from torch import Tensor

from bigtrk.console import complain, say
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.engines.engine import AVERAGE
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run import BEST_WEIGHTS, STALL, End, RunRecord
from bigtrk.records.run_folder import RUN, append_metrics
from bigtrk.tracing import traced
from bigtrk.training.best import Best
from bigtrk.training.checkpoint.checkpointer import stored_weights
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import read_checkpoint
from bigtrk.training.checkpoint.resume import continue_record
from bigtrk.training.costs import roofline
from bigtrk.training.data.event_source import data_record
from bigtrk.training.job import Job, note_run
from bigtrk.training.monitoring.loggers import Logger, open_logger
from bigtrk.training.named_code import code_records
from bigtrk.training.parts import Parts
from bigtrk.training.run_folder import (
    AVERAGED,
    CHECKPOINTS,
    create_run,
    record_end,
    save_model,
)


class RunWriter:
    """Writes the records and the model of a job's run, and opens its loggers: on rank 0 alone.

    opened: closes the loggers at its end.
    """

    def __init__(self, job: Job, parts: Parts, lock: FolderLock, opened: ExitStack) -> None:
        self._job, self._parts, self._lock, self._opened = job, parts, lock, opened
        self._loggers: list[Logger] = []
        self.record = _record(job, parts)
        self._folder: Path | None = None

    def open_folder(self, found: Found | None) -> Path:
        """Starts a run, or goes on with the record of the one to resume. Collective.

        Raises:
            InputError: the folder is taken, another process writes there, or a logger does not
                open: then nothing is left of a new run.
        """
        self._folder = on_first_rank(self._open, found)
        return self._folder

    def _open(self, found: Found | None) -> Path:
        resume, named = self._job.resume, self._job.configuration.run.folder
        if resume is not None and found is not None:
            continue_record(resume, self.record, found.checkpoint.progress)
            (resume / STALL).unlink(missing_ok=True)
            self._open_loggers(resume)
            return resume
        is_new = named is None or not named.exists()
        folder = create_run(self._lock, named, self.record)
        note_run(folder)
        try:
            self._open_loggers(folder)
        except InputError:
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                (folder / RUN).unlink()
            raise
        return folder

    def _open_loggers(self, folder: Path) -> None:
        for name in self._job.configuration.run.loggers:
            self._loggers.append(self._opened.enter_context(open_logger(name, folder)))

    def log(self, record: MetricsRecord) -> None:
        """Writes a record of a step, an epoch or a validation."""
        if self._job.ranks.is_first:
            assert self._folder is not None, "the folder is open"
            self._lock.check()
            append_metrics(self._folder, record)
            for log in self._loggers:
                log(record)

    def save_model(self, end: End | None, best: Best | None) -> None:
        """Writes the trained model, and what ended the training. Collective."""
        with traced("writing the model"):
            weights, averages = self._parts.engine.weights(), self._parts.averages
            averaged = averages.weights() if averages else None
            on_first_rank(self._save_model, weights, averaged, end, best)

    def _save_model(
        self,
        weights: dict[str, Tensor],
        averaged: dict[str, Tensor] | None,
        end: End | None,
        best: Best | None,
    ) -> None:
        assert self._folder is not None, "the folder is open"
        self._lock.check()
        others = {AVERAGED: averaged, BEST_WEIGHTS: _best_weights(self._folder, best)}
        save_model(self._folder, weights, self._parts.described, others)
        record_end(self._folder, end)
        say(f"model and record in {self._folder}")


def _record(job: Job, parts: Parts) -> RunRecord:
    """Makes the run's record, without what only its start knows."""
    configuration, data = job.configuration, data_record(job.events)
    assert data.nodes is not None, "graphs are counted"
    assert data.edges is not None, "graphs are counted"
    return RunRecord(
        launcher=job.ranks.launcher,
        world_size=job.ranks.world_size,
        engine=configuration.engine.name,
        engine_detail=parts.engine_name,
        parameters=parts.n_parameters,
        steps_per_epoch=parts.steps.per_epoch,
        config=configuration.model_dump(mode="json"),
        measured=parts.measured,
        code=code_records(configuration),
        data=data,
        roofline=roofline(configuration, data.nodes, data.edges),
    )


def _best_weights(run: Path, search: Best | None) -> dict[str, Tensor] | None:
    """Reads the weights that made the best epoch of a run the best: averaged ones, where epochs are
    judged by these. None where there is no such epoch, or its checkpoint is damaged, which is said.
    """
    if search is None or search.record is None:
        return None
    folder = run / CHECKPOINTS / search.record.checkpoint
    try:
        checkpoint = read_checkpoint(folder)
    except InputError as error:
        complain(f"{folder}: the best checkpoint is damaged: {error}; its weights are left out")
        return None
    judged_averaged = checkpoint.averaged and search.metric != "train_loss"
    return stored_weights(folder, checkpoint, AVERAGE if judged_averaged else "weight")
