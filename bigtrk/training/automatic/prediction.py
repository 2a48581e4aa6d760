"""Memory and time of a run with one candidate's settings, with its events cut in K sectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bigtrk.cost.cut_law import MOST_EXCESS
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import MachineConstants
from bigtrk.parallel.routing import Cut
from bigtrk.training.automatic.candidates import Candidate
from bigtrk.training.automatic.margin import Limit
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import FittingCuts

# A data set may have many thousands of events: so many stand for it, and so many steps of theirs.
_EVENTS, _STEPS = 32, 16
# Cuts were measured in as many sectors (cost/event_size.py).
_MOST_SECTORS = 256


@dataclass(frozen=True)
class Task:
    """Describes what a run is to do, and with what.

    sizes: those of its events. ranks_per_node: ranks that share a host. limit: the memory of a
    rank. cuttable: whole events may still be cut. allow_bf16: the precision may be chosen.
    """

    configuration: Configuration
    sizes: Sequence[EventSize]
    world: int
    ranks_per_node: int
    machine: MachineConstants
    limit: Limit
    cuttable: bool = False
    allow_bf16: bool = False

    @property
    def sectors(self) -> list[int]:
        """Lists the numbers of sectors that whole events may be cut in, ascending."""
        if not self.cuttable or all(size.stored > 1 for size in self.sizes):
            return [1]
        return [1 << i for i in range(_MOST_SECTORS.bit_length())]

    def events(self, sectors: int, excess: float = 1.0) -> list[EventSize]:
        """Lists some of the events, among them the largest ones, whole ones cut in `sectors`.

        excess: that of the largest sector's edges beyond the mean's, over the usual one.
        """
        return [
            replace(size, stored=sectors, excess=excess) if size.stored == 1 else size
            for size in _representative(self.sizes)
        ]

    def steps(self, n_events: int) -> list[list[int]]:
        """Draws steps of so many events, always the same: positions in `events`."""
        per_step = self.configuration.training.events_per_step
        if n_events == 1:
            return [[0] * per_step]
        drawn = np.random.default_rng(0).integers(n_events, size=(_STEPS, per_step))
        steps: list[list[int]] = drawn.tolist()
        return steps


@dataclass(frozen=True)
class Prediction:
    """A candidate with whole events cut in `sectors`.

    memory: bytes of a rank at the peak, the least possible if they do not fit. seconds: of a step,
    None if an event does not fit. cut: that of the event that is cut furthest.
    """

    candidate: Candidate
    sectors: int
    memory: float
    seconds: float | None
    cut: Cut

    @property
    def fits(self) -> bool:
        return self.seconds is not None

    @property
    def sectors_per_rank(self) -> int:
        return self.cut.most_on_a_rank


def predict(task: Task, candidate: Candidate, sectors: int) -> Prediction:
    """Predicts a run as its router will lay it over the ranks (steps/routers.py)."""
    configuration = candidate.configured(task.configuration)
    cost = make_cost(
        configuration, task.world, task.ranks_per_node, task.machine, events=len(task.sizes)
    )
    cuts = FittingCuts(configuration, cost, task.limit.budget)
    # What is not cut yet takes as long as it usually does, and has to fit in nine of ten cuts.
    usual, sizes = task.events(sectors), task.events(sectors, MOST_EXCESS)
    fitting = [cuts.fitting(*both) for both in zip(sizes, usual, strict=True)]
    if not all(fitting):
        memory, cut = max(cuts.least(size) for size in sizes)
        return Prediction(candidate, sectors, memory, None, cut)
    router = cuts.router(fitting)
    layouts = [router.layout(step) for step in task.steps(len(sizes))]
    used = {
        (share.event, Cut(share.parts, share.ranks))
        for layout in layouts
        for row in layout.micro_steps
        for share in row
        if share
    }
    return Prediction(
        candidate,
        sectors,
        memory=max(cuts.needed(sizes[event], cut) for event, cut in used),
        seconds=float(
            np.mean(
                [
                    one.seconds + cost.step_seconds(len(one.micro_steps), one.sectors_in_turn)
                    for one in layouts
                ]
            )
        ),
        cut=max(cut for _, cut in used),
    )


def _representative(sizes: Sequence[EventSize]) -> list[EventSize]:
    """Returns some of the sizes, evenly spread by edges, among them those with most of either."""
    spread = sorted(sizes, key=lambda size: (size.edges, size.nodes))
    if len(spread) > _EVENTS:
        places = np.linspace(0, len(spread) - 1, _EVENTS).round().astype(int)
        spread = [max(sizes, key=lambda size: size.nodes), *(spread[i] for i in places)]
    return spread
