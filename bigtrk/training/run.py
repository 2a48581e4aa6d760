"""An open run: a job with the parts of its training, and a folder that it alone writes."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bigtrk.console import complain, say
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.models.protocol import LayeredModel
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import AVERAGE, Engine, make_engine
from bigtrk.parallel.routing import Router
from bigtrk.parallel.watchdog import listening, records_in
from bigtrk.parallel.world import World, make_world
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run import BEST_WEIGHTS, STALL, End, RunRecord
from bigtrk.records.run_folder import RUN, append_metrics
from bigtrk.tracing import traced
from bigtrk.training.best import Best, check_recorded
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription, stored_weights
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import read_checkpoint
from bigtrk.training.checkpoint.resume import continue_record, find_checkpoint
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import data_record
from bigtrk.training.guards import StopRequest
from bigtrk.training.job import Job, note_run
from bigtrk.training.loss import check_loss
from bigtrk.training.monitoring.announce import stall_notes
from bigtrk.training.monitoring.loggers import Logger, open_logger
from bigtrk.training.named_code import code_records
from bigtrk.training.run_folder import (
    AVERAGED,
    CHECKPOINTS,
    FLIGHT,
    create_run,
    hold,
    record_end,
    save_model,
)
from bigtrk.training.schedule import Schedule
from bigtrk.training.start import described_model, first_model, first_scales
from bigtrk.training.steps.epoch_steps import EpochSteps, EventSteps, choose_steps
from bigtrk.training.steps.routers import scoring_router
from bigtrk.training.steps.spill import LaidEvents, check_host_memory, spill_edges


@dataclass(frozen=True)
class Parts:
    """The parts of a training.

    scoring: lays the events of validation over the ranks. averages: averaged weights, if the
    settings ask for them. record: the run's, without what only its start knows. described: the
    model's description, written with it at the end.
    """

    steps: EpochSteps
    scoring: Router
    world: World
    maker: BatchMaker
    engine: Engine
    averages: Averages | None
    schedule: Schedule
    record: RunRecord
    described: dict[str, Any]


def make_parts(job: Job) -> Parts:
    """Makes the parts of a training; one that is resumed has its checkpoint still to load.
    Collective, as are the calls marked so and those of `together`.

    Raises:
        InputError: the model or the loss keeps no contract, an event does not fit, or weights,
            scales or a description cannot be read.
    """
    configuration, ranks, events = job.configuration, job.ranks, job.events
    training = configuration.training
    with traced("building the model"):
        model = first_model(configuration, ranks, job.resume)  # collective
    together(check_loss, training.loss, ranks.device)
    together(check_recorded, configuration, len(events.validation))
    scoring = scoring_router(events.validation, ranks.world_size, isinstance(model, LayeredModel))
    with traced("choosing the steps"):
        steps = choose_steps(configuration, ranks, events.train)  # collective
    num_ranks, files = scoring.num_ranks, None
    if isinstance(steps, EventSteps):
        num_ranks = [*num_ranks, *steps.router.num_ranks]
        trained = LaidEvents(events.train, steps.router)
        scored = LaidEvents(events.validation, scoring)
        check_host_memory(configuration, ranks, trained)  # collective
        files = spill_edges(model, configuration, ranks, trained, scored)  # collective
    # Groups of all numbers of ranks that share an event in training or validation.
    world = make_world(ranks, num_ranks)  # collective
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    measured = first_scales(configuration, ranks, events, job.resume)  # collective
    described = together(described_model, configuration, events, measured)
    maker = together(BatchMaker, configuration, world, measured, files)
    with traced("making the engine"):
        engine, engine_name = make_engine(  # collective
            configuration.engine,
            model,
            configuration.optimizer,
            world.stopwatch,
            training.lr_factors,
        )
    decay, total_steps = training.average_decay, steps.per_epoch * training.epochs
    return Parts(
        steps=steps,
        scoring=scoring,
        world=world,
        maker=maker,
        engine=engine,
        averages=None if decay is None else Averages(engine, decay),
        schedule=Schedule(configuration.optimizer, training.events_per_step, total_steps),
        record=RunRecord(
            launcher=ranks.launcher,
            world_size=ranks.world_size,
            engine=configuration.engine.name,
            engine_detail=engine_name,
            parameters=n_parameters,
            steps_per_epoch=steps.per_epoch,
            config=configuration.model_dump(mode="json"),
            measured=measured,
            code=code_records(configuration),
            data=data_record(events),
        ),
        described=described,
    )


class RunWriter:
    """Writes the records and the model of a job's run, and opens its loggers: on rank 0 alone.

    opened: closes the loggers at its end.
    """

    def __init__(self, job: Job, parts: Parts, lock: FolderLock, opened: ExitStack) -> None:
        self._job, self._parts, self._lock, self._opened = job, parts, lock, opened
        self._loggers: list[Logger] = []
        self._folder = Path()

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
            continue_record(resume, self._parts.record, found.checkpoint.progress)
            (resume / STALL).unlink(missing_ok=True)
            self._open_loggers(resume)
            return resume
        is_new = named is None or not named.exists()
        folder = create_run(self._lock, named, self._parts.record)
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
        self._lock.check()
        others = {AVERAGED: averaged, BEST_WEIGHTS: _best_weights(self._folder, best)}
        save_model(self._folder, weights, self._parts.described, others)
        record_end(self._folder, end)
        say(f"model and record in {self._folder}")


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


@dataclass(frozen=True)
class Run:
    """A run whose folder this job holds. found: the checkpoint to go on from, if there is one."""

    job: Job
    parts: Parts
    folder: Path
    found: Found | None
    writer: RunWriter
    checkpoints: Checkpointer
    stop: StopRequest


@contextmanager
def open_run(job: Job) -> Iterator[Run]:
    """Makes the parts of a job's training, and holds the folder of its run, new or resumed, while
    the block runs. Collective, as are the calls marked so.

    Raises:
        InputError: the run folder is taken, another process writes there, there is nothing to
            resume, or a logger does not open; or as of `make_parts`.
    """
    stop, found = StopRequest(job.ranks), None
    # Signals are requests also while it is built: one that ended the process would leave the lock.
    with stop.listening(), FolderLock() as lock, ExitStack() as opened:
        if job.resume is not None:
            on_first_rank(hold, lock, job.resume)
            with traced("finding the checkpoint"):  # collective
                found = find_checkpoint(job.configuration, job.ranks, job.events, job.resume)
        parts = make_parts(job)  # collective
        writer = RunWriter(job, parts, lock, opened)
        folder = writer.open_folder(found)  # collective
        engine, averages, record = parts.engine, parts.averages, parts.record
        description = RunDescription(
            job.events.training_digest, str(record.engine_detail), record.config
        )
        with (
            listening(stall_notes(job.ranks, folder, lock)),
            records_in(folder / FLIGHT),
            Checkpointer(folder, engine, description, lock.check, averages) as checkpoints,
        ):
            yield Run(job, parts, folder, found, writer, checkpoints, stop)
