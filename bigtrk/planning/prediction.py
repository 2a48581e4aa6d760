"""The memory and the step time of a run, predicted from its configuration and its events."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.model import KEPT_PRODUCTS, CostModel
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.planning.dry_run import lay_events, predict_step
from bigtrk.planning.mini_batches import MiniBatches, mini_batches
from bigtrk.training.costs import make_cost, operations
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.batching import step_items
from bigtrk.training.steps.routers import GIB, FittingCuts

Task = tuple[EventSize, Cut]  # an event, or a part of one that is trained alone, and its cut
Sector = tuple[Task, int]  # a task, and the number of its sector
# Epochs that are followed: the median step of more is that of these.
_EPOCHS = 3


@dataclass(frozen=True)
class Predicted:
    """The predicted peak memory [bytes] of a rank and seconds of the median step."""

    peak_bytes: float
    step_seconds: float


def predict_run(
    configuration: Configuration, world: int, ranks_per_node: int, machine: MachineConstants
) -> Predicted:
    """Predicts a run that routes its events over as many ranks as it can, or samples them.

    Raises:
        InputError: its events cannot be read.
    """
    data = configuration.data
    sources = split_validation(data.train, data.validation, data.events)[0]
    cost = make_cost(configuration, world, ranks_per_node, machine, events=len(sources))
    if configuration.sampling.method == "none":
        budget = (configuration.training.memory_gib or math.inf) * GIB
        cuts = FittingCuts(configuration, cost, budget)
        tasks = [(source.size, max(cuts.cuts(source.parts)[0])) for source in sources]
        epochs = min(configuration.training.epochs, _EPOCHS)
        return predict_steps(cuts.cost_of(tasks), epochs * steps_of(configuration, tasks))
    batches = mini_batches(configuration, sources, world)
    return predict_mini_batches(configuration, cost, batches)


def predict_mini_batches(
    configuration: Configuration, cost: CostModel, batches: MiniBatches
) -> Predicted:
    """Predicts a run that trains mini-batches."""
    tasks = [(size, WHOLE) for size in batches.sizes]
    if not batches.of_each_rank:
        found = predict_steps(cost, steps_of(configuration, tasks))
        return Predicted(found.peak_bytes + batches.held_bytes, found.step_seconds)
    # A rank's share stands for those of all.
    found = predict_steps(cost, [[task] * cost.world for task in tasks])
    # Each mini-batch has a size of its own; those drawn were not all that a run has.
    more = cost.compiled_bytes(batches.steps, 1) - cost.compiled_bytes(len(tasks), 1)
    return Predicted(found.peak_bytes + more + batches.held_bytes, found.step_seconds)


def predict_steps(cost: CostModel, steps: Sequence[Sequence[Task]]) -> Predicted:
    """Predicts steps of given tasks."""
    tasks = {task for step in steps for task in step}
    most = max(cut.parts for _, cut in tasks)
    of_steps = [_sectors_of_ranks(cost, step) for step in steps]
    sizes = max(len(set(chain(*trained))) for trained in zip(*of_steps, strict=True))
    peak = max(_peak_bytes(cost, size, cut) for size, cut in tasks)
    compiling = _compiling(cost, of_steps, most)
    return Predicted(
        peak_bytes=peak + cost.compiled_bytes(sizes, most),
        step_seconds=median(
            predict_step(cost, step).seconds + more
            for step, more in zip(steps, compiling, strict=True)
        ),
    )


def _peak_bytes(cost: CostModel, size: EventSize, cut: Cut) -> float:
    """Returns the peak memory of an event, at most that for which it is laid out: edges' inputs, of
    the next step, are on their way to files while a pass begins, when memory does not have the
    edges yet that it keeps between layers.
    """
    memory = cost.memory(size, *cut)
    if cost.spills_beyond is None or cost.fits_without_files(size, *cut):
        return memory.total
    gone = cost.edge_input_bytes(size, cut.parts)
    if cost.reads_ahead:
        gone = min(gone, cost.away_bytes(size, *cut) - cost.spilled_bytes(size, *cut))
    return memory.total - min(gone, memory.saved + memory.working + memory.halo)


def _sectors_of_ranks(cost: CostModel, step: Sequence[Task]) -> list[list[Sector]]:
    """Lists the sectors that each rank trains in a step; alike ones are taken to be of one size."""
    of_rank: list[list[Sector]] = [[] for _ in range(cost.world)]
    for row in lay_events(cost, step).micro_steps:
        for own, share in zip(of_rank, row, strict=True):
            own += [(step[share.event], part) for part in share.held] if share else []
    return of_rank


def _compiling(
    cost: CostModel, of_steps: Sequence[Sequence[Sequence[Sector]]], parts: int
) -> list[float]:
    """Returns the seconds by which compiling products prolongs each step: those of sectors that a
    rank did not train lately.
    """
    products = cost.compiled_products(parts)
    if not products:
        return [0.0] * len(of_steps)
    most = max(1, KEPT_PRODUCTS // products)
    kept: list[OrderedDict[Sector, None]] = [OrderedDict() for _ in range(cost.world)]
    seconds = []
    for step in of_steps:
        new = max(_learn(sectors, known, most) for sectors, known in zip(step, kept, strict=True))
        seconds.append(new * products * cost.machine.compiling)
    return seconds


def _learn(sectors: Sequence[Sector], kept: OrderedDict[Sector, None], most: int) -> int:
    """Keeps the last `most` sectors, as oneDNN their products; returns how many are new."""
    new = 0
    for sector in sectors:
        new += sector not in kept
        kept[sector] = kept.pop(sector, None)
        if len(kept) > most:
            kept.popitem(last=False)
    return new


def steps_of(configuration: Configuration, tasks: Sequence[Task]) -> list[list[Task]]:
    """Lays tasks into the steps of a run's first epoch."""
    training = configuration.training
    costs = operations(configuration, [(size.nodes, size.edges) for size, _ in tasks])
    items = step_items(costs, training.events_per_step, training.seed, 0, training.batching)
    return [[tasks[item] for item in step] for step in items]
