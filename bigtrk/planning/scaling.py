"""The roofline of a machine, slowed down to what the steps of a recorded run took."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from bigtrk.config import parse
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import Machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.routing import Cut, RoutedEvent, lay_out
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import RUN, Run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration

Task = tuple[EventSize, Cut]


def step_seconds(cost: CostModel, events: Iterable[Task]) -> float:
    """Returns the seconds of a step of cut events: of its slowest rank, and of reducing."""
    known: dict[Task, float] = {}
    tasks = []
    for i, (event, cut) in enumerate(events):
        if (event, cut) not in known:
            known[event, cut] = cost.seconds(event, *cut)
        tasks.append(RoutedEvent(i, cut, known[event, cut]))
    layout = lay_out(tasks, cost.world, lockstep=cost.sharding.lockstep)
    micro_steps = len(layout.micro_steps)
    passes = cost.passes(micro_steps, layout.sectors_in_turn)
    return layout.seconds + cost.reduction_seconds(micro_steps, passes)


def as_measured(machine: Machine, run: Run) -> Machine:
    """Returns the machine on which the roofline of a run's median step takes what was recorded.

    Raises:
        InputError: the record lacks what is needed.
    """
    steps = [step for step in run.steps if step.routes][1:]
    measured = [step.seconds for step in steps if step.seconds]
    if not measured:
        raise InputError(f"{run.folder}: has no two steps of whole events; let it train longer")
    cost = _recorded_cost(run, machine)
    counted = median(step_seconds(cost, tasks) for tasks in _routed(run, steps))
    return machine.slower(median(measured) / counted)


def epoch_seconds(run: Run, machine: Machine) -> float:
    """Returns the seconds of an epoch of a run as it was routed, by the roofline of a machine.

    Raises:
        InputError: the record lacks what is needed.
    """
    # All epochs train the same events: the first stands for them.
    first = [step for step in run.steps if step.epoch == run.steps[0].epoch and step.routes]
    if not first:
        raise InputError(f"{run.folder}: does not say how events were routed")
    cost = _recorded_cost(run, machine)
    return sum(step_seconds(cost, tasks) for tasks in _routed(run, first))


def _recorded_cost(run: Run, machine: Machine) -> CostModel:
    world, events = run.record.world_size, run.record.data.train_events or math.inf
    return make_cost(_configuration(run), world, world, machine, events=events)


def _configuration(run: Run) -> Configuration:
    return parse(Configuration, run.record.config, str(run.folder / RUN))


def _routed(run: Run, steps: Sequence[StepRecord]) -> list[list[Task]]:
    """Returns the size and the cut of each event, by step."""
    most = max(step.ranks.get(name, n) for step in steps for name, n in step.routes.items())
    if most > run.record.world_size:
        # This happens to a run that was resumed on fewer ranks.
        raise InputError(
            f"{run.folder}: trained an event on {most} ranks, and was on {run.record.world_size} "
            f"at its end; name a run that kept its ranks"
        )
    known, mean = _sizes(run), _mean_size(run)
    return [
        [
            (known.get(name, mean), Cut(parts, step.ranks.get(name, parts)))
            for name, parts in step.routes.items()
        ]
        for step in steps
    ]


def _sizes(run: Run) -> dict[str, EventSize]:
    """Returns the sizes of the run's events by name; none where their folders are gone."""
    try:
        train = _configuration(run).data.train
        return {source.name: source.size for source in open_events(train)}
    except (InputError, OSError):  # OSError: for instance, the name of a folder is too long
        return {}


def _mean_size(run: Run) -> EventSize:
    data = run.record.data
    if not (data.train_events and data.nodes and data.edges):
        raise InputError(f"{run.folder}: does not say how large its events were")
    return EventSize(data.nodes / data.train_events, data.edges / data.train_events)
