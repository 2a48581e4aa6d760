"""Scaling without any ranks: counted work and exchanges of steps, laid over ranks as in training.

Seconds are those of a roofline or, by the record of a run, of one that is slowed down until it
takes as long as the run did.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from bigtrk.config import parse
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import Machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.routing import Cut, Layout, RoutedEvent, lay_out
from bigtrk.planning.sizes import draw
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import RUN, Run
from bigtrk.training.costs import make_cost
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration

STEPS = 32
MakeCost = Callable[[int], CostModel]
Task = tuple[EventSize, Cut]


@dataclass(frozen=True)
class Step:
    """Seconds of a step: the `slowest` rank's events, their `mean` over ranks, and of what all wait
    for, the reductions.
    """

    slowest: float
    mean: float
    reduced: float

    @property
    def seconds(self) -> float:
        return self.slowest + self.reduced


@dataclass(frozen=True)
class ScalingPoint:
    """A world size of a scaling curve. `step_seconds`: mean over the steps drawn.

    efficiency: relative to the smallest world's seconds per event and rank. imbalance: slowest rank
    / mean. waiting and communication: fractions of a step.
    """

    ranks: int
    parts: int
    events_per_step: int
    step_seconds: float
    efficiency: float
    speedup: float
    imbalance: float
    waiting: float
    communication: float


def step_of(cost: CostModel, events: Iterable[Task]) -> Step:
    """Returns the seconds of a step of events in given cuts."""
    layout = _lay_events(cost, events)
    turns = len(layout.micro_steps), layout.sectors_in_turn
    reduced = cost.reduction_seconds(turns[0], cost.passes(*turns))
    return Step(layout.seconds, float(layout.loads.mean()), reduced)


def _lay_events(cost: CostModel, events: Iterable[Task]) -> Layout:
    known: dict[Task, float] = {}
    tasks = []
    for i, (event, cut) in enumerate(events):
        if (event, cut) not in known:
            known[event, cut] = cost.seconds(event, *cut)
        tasks.append(RoutedEvent(i, cut, known[event, cut]))
    return lay_out(tasks, cost.world, lockstep=cost.sharding.lockstep)


def weak_scaling(
    make: MakeCost, sizes: Sequence[EventSize], ranks: Sequence[int], parts: int, seed: int
) -> list[ScalingPoint]:
    """Lists points of one event per step for every `parts` ranks."""
    worlds = sorted({world for world in ranks if world >= parts})
    return _curve(make, sizes, [(world, parts, world // parts) for world in worlds], seed)


def strong_scaling(
    make: MakeCost,
    sizes: Sequence[EventSize],
    ranks: Sequence[int],
    parts: int,
    events_per_step: int,
    seed: int,
) -> list[ScalingPoint]:
    """Lists points of equally many events per step on ever more ranks, in more sectors where ranks
    outnumber events.
    """
    cases = []
    for world in sorted({world for world in ranks if world >= parts}):
        wanted = max(parts, world // events_per_step)
        cases.append((world, 1 << (wanted.bit_length() - 1), events_per_step))
    return _curve(make, sizes, cases, seed)


def _curve(
    make: MakeCost, sizes: Sequence[EventSize], cases: Sequence[tuple[int, int, int]], seed: int
) -> list[ScalingPoint]:
    points: list[ScalingPoint] = []
    for world, parts, per_step in cases:
        cost, cut = make(world), Cut(parts, parts)
        drawn = draw(sizes, STEPS * per_step, seed)
        steps = [
            step_of(cost, [(event, cut) for event in drawn[i : i + per_step]])
            for i in range(0, len(drawn), per_step)
        ]
        seconds = fmean(step.seconds for step in steps)
        slowest, mean = fmean(step.slowest for step in steps), fmean(step.mean for step in steps)
        exchange = fmean(
            cost.exchange_seconds(size, parts) / cost.seconds(size, *cut) for size in sizes
        )
        rate = per_step / seconds
        first_rate, first_ranks = rate, world
        if points:
            first_rate = points[0].events_per_step / points[0].step_seconds
            first_ranks = points[0].ranks
        points.append(
            ScalingPoint(
                ranks=world,
                parts=parts,
                events_per_step=per_step,
                step_seconds=seconds,
                efficiency=rate / first_rate * first_ranks / world,
                speedup=rate / first_rate,
                imbalance=slowest / mean,
                waiting=(slowest - mean) / seconds,
                communication=(mean * exchange + steps[0].reduced) / seconds,
            )
        )
    return points


def as_measured(
    machine: Machine, run: Run, ranks_per_node: int | None = None, shares: int = 1
) -> Machine:
    """Returns the machine on which the roofline of a run's median step takes what was recorded.

    Raises:
        InputError: the record lacks what is needed.
    """
    steps = [step for step in run.steps if step.routes][1:]
    measured = [step.seconds for step in steps if step.seconds]
    if not measured:
        raise InputError(f"{run.folder}: has no two steps of whole events; let it train longer")
    cost = recorded_cost(run, machine, ranks_per_node, shares)
    counted = median(step_of(cost, tasks).seconds for tasks in _routed(run, steps))
    return machine.slower(median(measured) / counted)


def epoch_seconds(
    run: Run, machine: Machine, ranks_per_node: int | None = None, shares: int = 1
) -> float:
    """Returns the seconds of an epoch of a run, as it was routed. Without `ranks_per_node` all its
    ranks are taken to be on one host, whose cores are split into `shares` (`CostModel`).

    Raises:
        InputError: the record lacks what is needed.
    """
    # All epochs train the same events: the first stands for them.
    first = [step for step in run.steps if step.epoch == run.steps[0].epoch and step.routes]
    cost = recorded_cost(run, machine, ranks_per_node, shares)
    return sum(step_of(cost, tasks).seconds for tasks in _routed(run, first))


def recorded_cost(
    run: Run, machine: Machine, ranks_per_node: int | None = None, shares: int = 1
) -> CostModel:
    """Returns the cost model of a run as it was trained."""
    world, events = run.record.world_size, run.record.data.train_events or math.inf
    on_host = ranks_per_node or world
    return make_cost(_configuration(run), world, on_host, machine, shares, events)


def _configuration(run: Run) -> Configuration:
    return parse(Configuration, run.record.config, str(run.folder / RUN))


def _routed(run: Run, steps: Sequence[StepRecord]) -> list[list[Task]]:
    """Returns the size and the cut of each event, by step."""
    if not steps:
        raise InputError(
            f"{run.folder}: does not say how events were routed; name a run on whole events"
        )
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
