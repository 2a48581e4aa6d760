"""Dry runs: how long steps of many ranks take, and what keeps ranks waiting, without any ranks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.cost.model import CostModel
from bigtrk.parallel.routing import Cut, Layout, RoutedEvent, lay_out
from bigtrk.planning.event_sizes import draw

STEPS = 32
Floats = NDArray[np.float64]
MakeCost = Callable[[int], CostModel]


@dataclass(frozen=True)
class Step:
    """Seconds of a step: `slowest` rank's events, their `mean` over ranks, and what all wait for in
    `common`, of which that of reductions is `reduced`.
    """

    slowest: float
    mean: float
    common: float
    reduced: float

    @property
    def seconds(self) -> float:
        return self.slowest + self.common


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


def predict_step(cost: CostModel, events: Iterable[tuple[EventSize, Cut]]) -> Step:
    """Predicts a step of events cut in given ways, laid over the ranks as in training."""
    layout = lay_events(cost, events)
    # Ranks are faster while others wait.
    gain = until_done(cost, layout.loads) / layout.loads.max() if layout.loads.any() else 1.0
    slowest, mean = float(gain * layout.seconds), float(gain * layout.loads.mean())
    turns = len(layout.micro_steps), layout.sectors_in_turn
    reduced = cost.reduction_seconds(turns[0], cost.passes(*turns))
    return Step(slowest, mean, cost.step_seconds(*turns), reduced)


def until_done(cost: CostModel, loads: Floats) -> float:
    """Returns the seconds until all ranks are done, given those of each, [W], while all compute.
    Those of a host that wait for others leave it their cores.
    """
    hosts = np.split(loads, range(cost.ranks_per_node, len(loads), cost.ranks_per_node))
    return max(_host_until_done(cost.machine, host) for host in hosts)


def _host_until_done(machine: MachineConstants, loads: Floats) -> float:
    """Adds up the spans between the ends of one rank of a host and of the next."""
    spans = np.diff(np.sort(loads), prepend=0.0)
    left = range(len(loads), 0, -1)
    return float(spans @ [machine.slowdown(busy, len(loads)) for busy in left])


def lay_events(cost: CostModel, events: Iterable[tuple[EventSize, Cut]]) -> Layout:
    """Lays events cut in given ways over the ranks, as in training."""
    known: dict[tuple[EventSize, Cut], float] = {}
    tasks = []
    for i, (event, cut) in enumerate(events):
        if (event, cut) not in known:
            known[event, cut] = cost.seconds(event, *cut)
        tasks.append(RoutedEvent(i, cut, known[event, cut]))
    return lay_out(tasks, cost.world, lockstep=cost.sharding.lockstep)


def weak_scaling(
    make: MakeCost, sizes: Sequence[EventSize], ranks: Sequence[int], parts: int, seed: int
) -> list[ScalingPoint]:
    """Predicts one event per step for every `parts` ranks."""
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
    """Predicts equally many events per step on ever more ranks, in more sectors where ranks
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
        steps = _steps(make(world), sizes, parts, per_step, seed)
        seconds = float(np.mean([step.seconds for step in steps]))
        rate = per_step / seconds
        base_rate, base_ranks = (rate, world)
        if points:
            base_rate = points[0].events_per_step / points[0].step_seconds
            base_ranks = points[0].ranks
        slowest = float(np.mean([step.slowest for step in steps]))
        mean = float(np.mean([step.mean for step in steps]))
        points.append(
            ScalingPoint(
                ranks=world,
                parts=parts,
                events_per_step=per_step,
                step_seconds=seconds,
                efficiency=rate / base_rate * base_ranks / world,
                speedup=rate / base_rate,
                imbalance=slowest / mean,
                waiting=(slowest - mean) / seconds,
                communication=_communication(make(world), sizes, parts, steps) / seconds,
            )
        )
    return points


def _steps(
    cost: CostModel, sizes: Sequence[EventSize], parts: int, per_step: int, seed: int
) -> list[Step]:
    events = draw(sizes, STEPS * per_step, seed)
    return [
        predict_step(cost, [(event, Cut(parts, parts)) for event in events[i : i + per_step]])
        for i in range(0, len(events), per_step)
    ]


def _communication(
    cost: CostModel, sizes: Sequence[EventSize], parts: int, steps: Sequence[Step]
) -> float:
    """Returns the mean seconds of exchange and reduction in a step."""
    exchange = sum(
        cost.exchange_seconds(size, parts) / cost.seconds(size, parts, parts) for size in sizes
    )
    mean = float(np.mean([step.mean for step in steps]))
    return mean * exchange / len(sizes) + steps[0].reduced
