"""The memory and the step time of a run, predicted from its configuration and its events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.parallel.routing import WHOLE, Cut
from bigtrk.planning.dry_run import lay_events, predict_step
from bigtrk.planning.mini_batches import MiniBatches, mini_batches
from bigtrk.training.costs import make_cost, operations
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.batching import step_items
from bigtrk.training.steps.routers import GIB, FittingCuts

Task = tuple[EventSize, Cut]  # an event, or a part of one that is trained alone, and its cut


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
        return predict_steps(cuts.spilling or cost, steps_of(configuration, tasks))
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
    sizes = _sizes_of_a_rank(cost, steps)
    peak = max(cost.memory(size, *cut).total for size, cut in tasks)
    return Predicted(
        peak_bytes=peak + cost.compiled_bytes(sizes, most),
        step_seconds=median(predict_step(cost, step).seconds for step in steps),
    )


def _sizes_of_a_rank(cost: CostModel, steps: Sequence[Sequence[Task]]) -> int:
    """Counts the sectors of different sizes that the rank with most of them trains."""
    of_rank: list[set[tuple[Task, int]]] = [set() for _ in range(cost.world)]
    for step in steps:
        for row in lay_events(cost, step).micro_steps:
            for known, share in zip(of_rank, row, strict=True):
                known |= {(step[share.event], part) for part in share.held} if share else set()
    return max(map(len, of_rank))


def steps_of(configuration: Configuration, tasks: Sequence[Task]) -> list[list[Task]]:
    """Lays tasks into the steps of a run's first epoch."""
    training = configuration.training
    costs = operations(configuration, [(size.nodes, size.edges) for size, _ in tasks])
    items = step_items(costs, training.events_per_step, training.seed, 0, training.batching)
    return [[tasks[item] for item in step] for step in items]
