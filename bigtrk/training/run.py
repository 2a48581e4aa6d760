"""A job, the training that all ranks agree on; and its open run: its parts and its folder."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from bigtrk.config import flat
from bigtrk.console import complain, say, warn_once
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.machine import software
from bigtrk.models.protocol import LayeredModel
from bigtrk.parallel.collectives import check_agreement, on_first_rank, together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import AVERAGE, Engine, make_engine
from bigtrk.parallel.process_group import agent_store
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Router
from bigtrk.parallel.watchdog import listening, records_in
from bigtrk.parallel.world import World, make_world
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run import BEST_WEIGHTS, STALL, End, RunRecord
from bigtrk.records.run_folder import RUN, append_metrics
from bigtrk.tracing import traced
from bigtrk.training.automatic import settle
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription, stored_weights
from bigtrk.training.checkpoint.folder import (
    Found,
    continue_record,
    find_checkpoint,
    has_any,
    resumed_configuration,
)
from bigtrk.training.checkpoint.manifest import read_checkpoint
from bigtrk.training.cuda_graphs import use_graphs
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import Events, data_record, split_validation
from bigtrk.training.data.features import with_degrees
from bigtrk.training.guards import StopRequest
from bigtrk.training.loss import check_loss
from bigtrk.training.model_files import described_model, first_model, first_scales
from bigtrk.training.monitoring.announce import stall_notes
from bigtrk.training.monitoring.loggers import Logger, check_loggers, open_logger
from bigtrk.training.run_folder import (
    AVERAGED,
    CHECKPOINTS,
    FLIGHT,
    clear_run,
    create_run,
    hold,
    record_end,
    save_model,
)
from bigtrk.training.schedule import Best, Schedule, check_recorded
from bigtrk.training.settings import Configuration, code_records
from bigtrk.training.spill import LaidEvents, check_host_memory, spill_edges
from bigtrk.training.steps import EpochSteps, EventSteps, choose_steps, scoring_router


@dataclass(frozen=True)
class Job:
    """A training to do: settings, ranks, events, and the folder of the run if it resumes one."""

    configuration: Configuration
    ranks: Ranks
    events: Events
    resume: Path | None = None


def prepare(configuration: Configuration, ranks: Ranks, resume: Path | None = None) -> Job:
    """Makes the job: opens the data and chooses open settings. Collective. Raises InputError if
    ranks differ in software, settings, code or data, if the data lack a feature, or as `completed`.
    """
    versions = {name: str(version) for name, version in software().items()}
    check_agreement({**versions, **flat(configuration.model_dump(mode="json"))})
    code = together(code_records, configuration)
    check_agreement({f"version of {name}": str(one.version) for name, one in code.items()})
    with traced("opening data"):
        configuration, events = together(open_data, configuration)
    check_agreement({"data": events.fingerprint})
    return completed(Job(configuration, ranks, events, resume))


def completed(job: Job) -> Job:
    """Returns the job, open settings chosen. Collective. InputError if none fit, or no logger."""
    configuration, events = job.configuration, job.events
    together(check_loggers, configuration.run.loggers)
    configuration = with_degrees(configuration, events.train)  # collective
    if configuration.training.auto and not job.resume:  # a resumed run's record has its choice
        with traced("choosing settings"):
            configuration = settle(configuration, job.ranks, events.train)  # collective
    return replace(job, configuration=configuration)


def open_data(configuration: Configuration) -> tuple[Configuration, Events]:
    """Opens and checks the data. If data.edge_features is not set and no event has edge features,
    the returned configuration reads none. Raises InputError if an event lacks something.
    """
    data = configuration.data
    events = Events(*split_validation(data.train, data.validation, data.events))
    sources = [*events.train, *events.validation]
    has_features = any(source.edge_features for source in sources)
    if not has_features and "edge_features" not in data.model_fields_set:
        warn_once(
            "edge features",
            f"{sources[0].folder.path}: its graphs have no edge features, nor r, phi and z to "
            f"compute some; training without them (data.edge_features=[])",
        )
        data = data.model_copy(update={"edge_features": []})
        configuration = configuration.model_copy(update={"data": data})
    for source in sources:
        source.check(
            data.node_features, data.edge_features, with_pt=configuration.training.pt_weight > 0
        )
        if configuration.model.kind == "hit":
            source.check_true_edges()
    return configuration, events


# The key of the run in the store of torchrun's agent, which outlives the ranks that it restarts
# (`--max-restarts`) and is this torchrun's alone.
_KEY = "bigtrk/run"


def note_run(folder: Path) -> None:
    """Stores the run's folder with torchrun's agent, if that started the ranks, for a restart."""
    with suppress(dist.DistError):
        if store := agent_store():
            store.set(_KEY, str(folder))


def after_restart(configuration: Configuration) -> tuple[Configuration, Path | None]:
    """Returns the configuration after a restart by torchrun, and the run to resume; None if there
    is none: without a checkpoint it begins again. Collective. InputError if it is damaged or taken.
    """
    folder = on_first_rank(_noted_run)
    if folder is None:
        return configuration, None
    if on_first_rank(_can_resume, folder):
        return together(resumed_configuration, folder, ()), folder
    run = configuration.run.model_copy(update={"folder": folder})
    return configuration.model_copy(update={"run": run}), None


def _noted_run() -> Path | None:
    with suppress(dist.DistError):
        store = agent_store()
        if store and store.check([_KEY]):
            folder = Path(store.get(_KEY).decode())
            return folder if (folder / RUN).exists() else None
    return None


def _can_resume(folder: Path) -> bool:
    """Whether the run has checkpoints; clears a run that has none."""
    goes_on = has_any(folder)
    if not goes_on:
        clear_run(folder)
    what = "goes on" if goes_on else "has no checkpoint yet, and begins again"
    say(f"{folder}: torchrun has restarted its ranks; the run {what}")
    return goes_on


@dataclass(frozen=True)
class Parts:
    """The parts of a training. scoring: assigns the validation events to ranks. averages: averaged
    weights, if configured. described: the model's description, written at the end.
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
    """Makes the parts of a training; the caller then loads the checkpoint of a resumed one.
    Collective, as are the calls marked so and `together`. Raises InputError if model or loss break
    a contract, an event does not fit, or weights, scales or a description cannot be read.
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
    # One group for each number of ranks that share an event in training or validation.
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
    if training.cuda_graphs:
        use_graphs(configuration, model, ranks.device)
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
    """Writes a run's records and model on rank 0; logs to its loggers, which `opened` closes."""

    def __init__(self, job: Job, parts: Parts, lock: FolderLock, opened: ExitStack) -> None:
        self._job, self._parts, self._lock, self._opened = job, parts, lock, opened
        self._loggers: list[Logger] = []
        self._folder = Path()

    def open(self, found: Found | None) -> Path:
        """Starts or continues a run; returns its folder. InputError if a logger cannot open."""
        resume, named = self._job.resume, self._job.configuration.run.folder
        is_new = resume is None and (named is None or not named.exists())
        if resume is not None and found is not None:
            folder = resume
            continue_record(folder, self._parts.record, found.checkpoint.progress)
            (folder / STALL).unlink(missing_ok=True)
        else:
            folder = create_run(self._lock, named, self._parts.record)
            note_run(folder)
        try:
            for name in self._job.configuration.run.loggers:
                self._loggers.append(self._opened.enter_context(open_logger(name, folder)))
        except InputError:
            if is_new:
                shutil.rmtree(folder, ignore_errors=True)
            elif resume is None:
                (folder / RUN).unlink()
            raise
        self._folder = folder
        return folder

    def log(self, record: MetricsRecord) -> None:
        """Writes the record of a step, an epoch or a validation to file and loggers, on rank 0."""
        if self._job.ranks.is_first:
            self._lock.check()
            append_metrics(self._folder, record)
            for log in self._loggers:
                log(record)

    def save_model(self, end: End | None, best: Best | None, step: int) -> None:
        """Writes the model after `step` steps, and the reason of the end. Collective."""
        with traced("writing the model"):
            weights, averages = self._parts.engine.weights(), self._parts.averages
            averaged = averages.weights() if averages else None

            def write() -> None:
                self._lock.check()
                others = {AVERAGED: averaged, BEST_WEIGHTS: _best_weights(self._folder, best)}
                described = self._parts.described | {"step": step}
                save_model(self._folder, weights, described, others)
                record_end(self._folder, end)
                say(f"model and record in {self._folder}")

            on_first_rank(write)


def _best_weights(run: Path, search: Best | None) -> dict[str, Tensor] | None:
    """Reads the weights of the best epoch (averaged, if these were judged); None if damaged."""
    if search is None or search.record is None:
        return None
    folder = run / CHECKPOINTS / search.record.checkpoint
    try:
        checkpoint = read_checkpoint(folder)
    except InputError as error:
        complain(f"{folder}: the best checkpoint is damaged: {error}; {BEST_WEIGHTS} is left out")
        return None
    judged_averaged = checkpoint.averaged and search.metric != "train_loss"
    return stored_weights(folder, checkpoint, AVERAGE if judged_averaged else "weight")


@dataclass(frozen=True)
class Run:
    """An open run, whose folder this job holds. found: the checkpoint to resume from, if any."""

    job: Job
    parts: Parts
    folder: Path
    found: Found | None
    writer: RunWriter
    checkpoints: Checkpointer
    stop: StopRequest


@contextmanager
def open_run(job: Job) -> Iterator[Run]:
    """Yields the run of a job, with all its parts, and holds its folder while the block runs.
    Collective, as are the calls marked so. Raises InputError if the folder is taken, there is
    nothing to resume, a logger does not open, or as `make_parts`.
    """
    stop, found = StopRequest(job.ranks), None
    # Signals are requests from here on: a signal that killed the process would leave the lock.
    with stop.listening(), FolderLock() as lock, ExitStack() as opened:
        if job.resume is not None:
            on_first_rank(hold, lock, job.resume)
            with traced("finding the checkpoint"):  # collective
                found = find_checkpoint(job.configuration, job.ranks, job.events, job.resume)
        parts = make_parts(job)  # collective
        writer = RunWriter(job, parts, lock, opened)
        folder = on_first_rank(writer.open, found)
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
