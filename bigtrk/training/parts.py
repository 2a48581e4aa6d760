"""The parts of a training: its steps, its batches, its model in an engine, made for a job."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from bigtrk.models.protocol import LayeredModel
from bigtrk.parallel.collectives import together
from bigtrk.parallel.engines.averages import Averages
from bigtrk.parallel.engines.engine import Engine, make_engine
from bigtrk.parallel.routing import Router
from bigtrk.parallel.world import World, make_world
from bigtrk.records.run import MeasuredScales
from bigtrk.tracing import traced
from bigtrk.training.best import check_recorded
from bigtrk.training.checkpoint.folder import Found
from bigtrk.training.checkpoint.resume import check_place
from bigtrk.training.data.batch import BatchMaker
from bigtrk.training.data.places import InputFiles
from bigtrk.training.job import Job
from bigtrk.training.loss import check_loss
from bigtrk.training.schedule import Schedule
from bigtrk.training.start import described_model, first_model, first_scales
from bigtrk.training.steps.epoch_steps import EpochSteps, EventSteps, choose_steps
from bigtrk.training.steps.routers import scoring_router
from bigtrk.training.steps.spill import LaidEvents, check_host_memory, spill_edges


@dataclass(frozen=True)
class Parts:
    """The parts of a training.

    scoring: lays the events of validation over the ranks. averages: averaged weights, if the
    settings ask for them. described: the model's description, written with it at the end.
    """

    steps: EpochSteps
    scoring: Router
    world: World
    maker: BatchMaker
    engine: Engine
    engine_name: str
    averages: Averages | None
    schedule: Schedule
    measured: MeasuredScales
    n_parameters: int
    described: dict[str, Any]


def make_parts(job: Job, found: Found | None) -> Parts:
    """Makes the parts of a training, which goes on from the checkpoint `found` if there is one: its
    engine is still to load that. Collective, as are the calls marked so and those of `together`.

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
    several = isinstance(model, LayeredModel)
    scoring = scoring_router(events.validation, ranks.world_size, several)
    with traced("choosing the steps"):
        steps = choose_steps(configuration, ranks, events.train)  # collective
    files = _keep_edges_away(job, model, steps, scoring)  # collective
    if found:
        check_place(found, steps.per_epoch)
    # Groups of all numbers of ranks that share an event in training or validation.
    world = make_world(ranks, [*steps.num_ranks, *scoring.num_ranks])  # collective
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
        engine_name=engine_name,
        averages=None if decay is None else Averages(engine, decay),
        schedule=Schedule(configuration.optimizer, training.events_per_step, total_steps),
        measured=measured,
        n_parameters=n_parameters,
        described=described,
    )


def _keep_edges_away(
    job: Job, model: nn.Module, steps: EpochSteps, scoring: Router
) -> InputFiles | None:
    """Has the model keep edges on the host or in files, where the settings say so; returns the
    files for the inputs of edges, if these are short of memory, too. Collective.
    """
    configuration, ranks = job.configuration, job.ranks
    if not isinstance(steps, EventSteps):
        return None
    trained = LaidEvents(job.events.train, steps.router)
    check_host_memory(configuration, ranks, trained)
    if not configuration.training.spill:
        return None
    scored = LaidEvents(job.events.validation, scoring)
    return spill_edges(model, configuration, ranks, trained, scored)
