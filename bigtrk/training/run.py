"""A training run from its configuration to the trained model on disk."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bigtrk.console import complain, say
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, StoppedError
from bigtrk.models.protocol import LayeredModel
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import AVERAGE, Engine, make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Router
from bigtrk.parallel.watchdog import listening, records_in
from bigtrk.parallel.world import Stopwatch, make_world
from bigtrk.records.metrics import MetricsRecord
from bigtrk.records.run import BEST_WEIGHTS, MeasuredScales, RunRecord, clear_stall
from bigtrk.records.run_folder import RUN, append_metrics
from bigtrk.tracing import traced
from bigtrk.training.automatic import settle
from bigtrk.training.best import Best, check_recorded, search_of
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription, stored_weights
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.manifest import read_checkpoint
from bigtrk.training.checkpoint.resume import (
    check_place,
    continue_record,
    find_checkpoint,
)
from bigtrk.training.costs import roofline
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.event_source import Events, data_record
from bigtrk.training.data.features import with_degrees
from bigtrk.training.data.places import InputFiles
from bigtrk.training.guards import StopRequest, allocations_noted, report_out_of_memory
from bigtrk.training.loss import check_loss
from bigtrk.training.monitoring.announce import (
    EpochLines,
    announce,
    announce_best,
    stall_notes,
)
from bigtrk.training.monitoring.loggers import Logger, check_loggers, open_logger
from bigtrk.training.monitoring.meter import open_meter, profiled
from bigtrk.training.named_code import code_records
from bigtrk.training.restart import note_run
from bigtrk.training.run_folder import (
    AVERAGED,
    CHECKPOINTS,
    FLIGHT,
    create_run,
    hold,
    record_end,
    save_model,
)
from bigtrk.training.schedule import Clock, Schedule
from bigtrk.training.settings import Configuration
from bigtrk.training.start import described_model, first_model, first_scales
from bigtrk.training.steps.epoch_steps import EpochSteps, EventSteps, RoutedStep, choose_steps
from bigtrk.training.steps.routers import scoring_router
from bigtrk.training.steps.spill import LaidEvents, check_host_memory, spill_edges
from bigtrk.training.trainer import Trainer

_MORE_MEMORY = (
    "resume with a lower training.memory_gib, so that events are trained in more sectors, or on "
    "more ranks; `bigtrk plan` says what events need"
)


def fit(configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None) -> Path:
    """Trains, resuming the run at `resume` if given; returns the run folder. Collective.

    Raises:
        InputError: a logger's package is not installed, or it does not open; the run folder is
            taken, another process writes there, or there is nothing to resume.
        StoppedError: a signal, or the launcher's end, asked for it; the state is saved.
    """
    together(lambda: check_loggers(configuration.run.loggers))
    configuration = with_degrees(configuration, events.train)
    if configuration.training.auto and resume is None:  # a resumed run's record has its choice
        with traced("choosing settings"):
            configuration = settle(configuration, ranks, events.train)
    stop = StopRequest(ranks)
    # Signals are requests also while it is built: one that ended the process would leave the lock.
    with stop.listening(), FolderLock() as lock, ExitStack() as opened:
        if resume:
            on_first_rank(lambda: hold(lock, resume))
        return _fit(configuration, ranks, events, resume, lock, opened, stop)


def _fit(
    configuration: Configuration,
    ranks: Ranks,
    events: Events,
    resume: Path | None,
    lock: FolderLock,
    opened: ExitStack,
    stop: StopRequest,
) -> Path:
    with traced("finding the checkpoint"):
        found = find_checkpoint(configuration, ranks, events, resume) if resume else None
    with traced("building the model"):
        model = first_model(configuration, ranks, resume)
    together(lambda: _check(configuration, ranks, events))
    several = isinstance(model, LayeredModel)
    scoring = scoring_router(events.validation, ranks.world_size, several)
    steps, files = _steps(configuration, ranks, events, model, scoring)
    if found:
        check_place(found, steps.per_epoch)
    # Groups of all numbers of ranks that share an event in training or validation.
    world = make_world(ranks, [*steps.num_ranks, *scoring.num_ranks])
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    measured = first_scales(configuration, ranks, events, resume)
    described = together(lambda: described_model(configuration, events, measured))
    maker = together(lambda: BatchMaker(configuration, world, measured, files))
    with traced("making the engine"):
        engine, engine_name = _engine(configuration, model, world.stopwatch)
    record = _record(
        configuration, ranks, events, engine_name, n_parameters, steps.per_epoch, measured
    )
    loggers: list[Logger] = []  # of rank 0

    def open_loggers(folder: Path) -> None:
        names = configuration.run.loggers
        loggers.extend(opened.enter_context(open_logger(name, folder)) for name in names)

    folder = on_first_rank(
        lambda: _open_folder(lock, configuration, record, found, resume, open_loggers)
    )
    description = RunDescription(events.training_digest, engine_name, record.config)
    averages = _averages(configuration, engine)
    with (
        listening(stall_notes(ranks, folder, lock)),
        records_in(folder / FLIGHT),
        Checkpointer(folder, engine, description, lock.check, averages) as checkpoints,
    ):
        trainer = Trainer(
            configuration=configuration,
            world=world,
            events=events,
            epoch_steps=steps,
            scoring=scoring,
            engine=engine,
            maker=maker,
            schedule=_schedule(configuration, steps),
            meter=open_meter(ranks),
            clock=Clock(configuration.training, world.device),
            log=_logger(ranks, folder, lock, loggers),
            checkpoints=checkpoints,
            stop=stop,
            best=search_of(configuration),
            averages=averages,
        )
        _begin(trainer, found)
        _train_within_memory(trainer, folder, record)
    _check_ended(trainer, stop, folder)
    with traced("writing the model"):
        _save_model(trainer, folder, lock, described)
    return folder


def _check_ended(trainer: Trainer, stop: StopRequest, folder: Path) -> None:
    """Says how to go on with a training that was stopped.

    Raises:
        StoppedError: it was.
    """
    if trainer.stopped:
        raise StoppedError(
            f"{stop.agreed_reason()}: stopped after step {trainer.step}, saved; continue with "
            f"--resume {folder}"
        )


def _check(configuration: Configuration, ranks: Ranks, events: Events) -> None:
    """Checks what of a configuration only its code or its events can tell.

    Raises:
        InputError: the loss is no good function, or the metric of the best epoch is not recorded.
    """
    check_loss(configuration.training.loss, ranks.device)
    check_recorded(configuration, len(events.validation))


def _engine(
    configuration: Configuration, model: nn.Module, stopwatch: Stopwatch
) -> tuple[Engine, str]:
    factors = configuration.training.lr_factors
    return make_engine(configuration.engine, model, configuration.optimizer, stopwatch, factors)


def _averages(configuration: Configuration, engine: Engine) -> Averages | None:
    decay = configuration.training.average_decay
    return None if decay is None else Averages(engine, decay)


def _begin(trainer: Trainer, found: Found | None) -> None:
    """Goes on from the checkpoint `found`; a new run writes one where it may be rolled back."""
    if found:
        trainer.load(found)
    elif trainer.configuration.training.spike_guard == "roll_back":
        trainer.save()


def _train_within_memory(trainer: Trainer, folder: Path, record: RunRecord) -> None:
    """Trains; if the memory of this rank runs out, it says so, and a GPU's content is written."""
    rank, device = trainer.world.ranks.rank, trainer.world.device
    profiles = trainer.configuration.profile
    with (
        allocations_noted(device) if profiles else nullcontext(),
        report_out_of_memory(
            f"rank {rank}", _MORE_MEMORY, snapshot=folder / f"memory-rank{rank}.pickle"
        ),
    ):
        _train(trainer, folder, record)


def _train(trainer: Trainer, folder: Path, record: RunRecord) -> None:
    ranks, first = trainer.world.ranks, trainer.epoch
    lines = EpochLines(ranks, trainer.configuration.training)

    def started(routes: Sequence[RoutedStep]) -> None:
        if trainer.epoch == first:
            stored = [source.parts for source in trainer.events.train]
            announce(ranks, folder, record, routes, stored, trainer.configuration)

    with _profiler(trainer, folder) as after_step:
        trainer.run(after_step, started, lines.show)
    announce_best(ranks, trainer.best, trainer.end)


def _steps(
    configuration: Configuration,
    ranks: Ranks,
    events: Events,
    model: nn.Module,
    scoring: Router,
) -> tuple[EpochSteps, InputFiles | None]:
    """Chooses the steps of an epoch; where edges are spilled, `model` is told how they are laid
    over ranks, and the files for their inputs are returned.
    """
    with traced("choosing the steps"):
        steps = choose_steps(configuration, ranks, events.train)
    if not isinstance(steps, EventSteps):
        return steps, None
    trained = LaidEvents(events.train, steps.router)
    check_host_memory(configuration, ranks, trained)
    if not configuration.training.spill:
        return steps, None
    scored = LaidEvents(events.validation, scoring)
    return steps, spill_edges(model, configuration, ranks, trained, scored)


def _schedule(configuration: Configuration, steps: EpochSteps) -> Schedule:
    training = configuration.training
    total = steps.per_epoch * training.epochs
    return Schedule(configuration.optimizer, training.events_per_step, total)


def _profiler(trainer: Trainer, folder: Path) -> AbstractContextManager[Callable[[], None]]:
    """Makes the function that is called after each step."""
    left = trainer.schedule.total_steps - trainer.step
    if not trainer.configuration.profile or not left:
        return nullcontext(lambda: None)
    return profiled(folder, trainer.world.ranks, left)


def _open_folder(
    lock: FolderLock,
    configuration: Configuration,
    record: RunRecord,
    found: Found | None,
    resume: Path | None,
    open_loggers: Callable[[Path], None],
) -> Path:
    """Starts a run, or continues the record of one to resume, whose folder is held already; a run
    whose loggers do not open leaves nothing of its own behind.
    """
    if resume is not None and found is not None:
        continue_record(resume, record, found.checkpoint.progress)
        clear_stall(resume)
        open_loggers(resume)
        return resume
    named = configuration.run.folder
    is_new = named is None or not named.exists()
    folder = create_run(lock, named, record)
    note_run(folder)
    try:
        open_loggers(folder)
    except InputError:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            (folder / RUN).unlink()
        raise
    return folder


def _save_model(
    trainer: Trainer, folder: Path, lock: FolderLock, described: dict[str, Any]
) -> None:
    weights = trainer.engine.weights()
    averaged = trainer.averages.weights() if trainer.averages else None

    def save() -> None:
        lock.check()
        best = _best_weights(folder, trainer.best)
        save_model(folder, weights, described, {AVERAGED: averaged, BEST_WEIGHTS: best})
        record_end(folder, trainer.end)
        say(f"model and record in {folder}")

    on_first_rank(save)


def _record(
    configuration: Configuration,
    ranks: Ranks,
    events: Events,
    engine_name: str,
    n_parameters: int,
    per_epoch: int,
    measured: MeasuredScales,
) -> RunRecord:
    """Makes the run's record, without what only its start knows."""
    data = data_record(events)
    assert data.nodes is not None, "graphs are counted"
    assert data.edges is not None, "graphs are counted"
    return RunRecord(
        launcher=ranks.launcher,
        world_size=ranks.world_size,
        engine=configuration.engine.name,
        engine_detail=engine_name,
        parameters=n_parameters,
        steps_per_epoch=per_epoch,
        config=configuration.model_dump(mode="json"),
        measured=measured,
        code=code_records(configuration),
        data=data,
        roofline=roofline(configuration, data.nodes, data.edges),
    )


def _logger(
    ranks: Ranks, folder: Path, lock: FolderLock, loggers: Sequence[Logger]
) -> Callable[[MetricsRecord], None]:
    """Returns what writes a record: rank 0's alone, while it holds the folder."""
    if not ranks.is_first:
        return lambda _: None

    def write(record: MetricsRecord) -> None:
        lock.check()
        append_metrics(folder, record)
        for log in loggers:
            log(record)

    return write


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
