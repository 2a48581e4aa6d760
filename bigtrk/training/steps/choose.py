"""The choice of the steps that a configuration asks for."""

from collections.abc import Sequence

from bigtrk.console import say
from bigtrk.cost.sharding import sharding
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.sampling.shadow import ShaDow
from bigtrk.sampling.subgraphs import Walk
from bigtrk.training.costs import operations
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.epoch_steps import EpochSteps, EventSteps
from bigtrk.training.steps.mini_batches import SectorSteps, ShadowSteps
from bigtrk.training.steps.routers import training_router
from bigtrk.training.steps.wedge_steps import WedgeSteps


def choose_steps(
    configuration: Configuration, ranks: Ranks, sources: list[EventSource]
) -> EpochSteps:
    """Makes the steps of each epoch. Collective.

    Raises:
        InputError: events do not fit a rank's memory.
    """
    training, world = configuration.training, ranks.world_size
    match configuration.sampling.method:
        case "none":
            router = training_router(configuration, ranks, sources)
            sizes = [(source.record["nodes"], source.record["edges"]) for source in sources]
            return EventSteps(sources, router, _costs(configuration, sizes), training)
        case "sectors":
            sectors = [
                (event, part, source.parts)
                for event, source in enumerate(sources)
                for part in range(source.parts)
            ]
            sizes = [_size(sources[event], part) for event, part, _ in sectors]
            costs = _costs(configuration, sizes)
            lockstep = sharding(configuration.engine, world).lockstep
            return SectorSteps(sources, sectors, costs, training, world, lockstep)
        case "wedges":
            wedges = configuration.sampling.wedges
            sizes = [
                (source.record["nodes"] / wedges, source.record["edges"] / wedges)
                for source in sources
            ]
            lockstep = sharding(configuration.engine, world).lockstep
            costs = _costs(configuration, sizes)
            return WedgeSteps(sources, wedges, costs, training, world, lockstep)
        case "shadow":
            _warn_of_small_events(ranks, sources, configuration.sampling.batch_size)
            return ShadowSteps(sources, _shadow(configuration), training.seed, ranks)


def _costs(configuration: Configuration, sizes: Sequence[tuple[float, float]]) -> list[float]:
    """Returns the costs that rank 0 computes for all: hosts may round differently. Collective."""
    return on_first_rank(lambda: operations(configuration, sizes))


def _size(source: EventSource, part: int) -> tuple[float, float]:
    """Returns the nodes and edges of a sector, or of a whole event."""
    if source.parts == 1:
        return source.record["nodes"], source.record["edges"]
    sector = source.record["sectors"][part]
    return sector["owned"] + sector["halo"], sector["edges"]


def _shadow(configuration: Configuration) -> ShaDow:
    sampling = configuration.sampling
    return ShaDow(Walk(sampling.depth, sampling.fanout), sampling.batch_size, sampling.bulk)


def _warn_of_small_events(ranks: Ranks, sources: Sequence[EventSource], batch_size: int) -> None:
    small = [source for source in sources if source.record["nodes"] < batch_size]
    if small and ranks.is_first:
        say(
            f"{len(small)} of {len(sources)} events have fewer nodes than "
            f"sampling.batch_size={batch_size}: each of them is one mini-batch"
        )
