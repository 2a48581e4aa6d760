"""The numbers of sectors that each event may be trained in, by a rank's memory and predicted time.

Rank 0 predicts once, before training, for all: two hosts may round differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import all_max, on_first_rank
from bigtrk.parallel.host import memory_of_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import Router, as_stored, possible_parts, usable_parts
from bigtrk.training.costs import find_machine, make_cost
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration

GIB = 2**30
# Events named in a message; the others are counted.
_NAMED = 5
# Sectors beyond which cutting an event further is no remedy.
_MOST_PARTS = 4096


def scoring_router(sources: Sequence[EventSource], world_size: int) -> Router:
    """Makes a router that scores each event in as many of its sectors as there are ranks for."""
    return as_stored([(source.parts, source.record["edges"]) for source in sources], world_size)


def training_router(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource]
) -> Router:
    """Makes a router that knows each event's cost and the sectors that fit. Collective.

    Raises:
        InputError: events do not fit a rank's memory in the sectors that they are stored in, on
            these ranks; or the calibration of the machine cannot be read.
    """
    budget = memory_budget(configuration, ranks)
    return on_first_rank(lambda: _predict(configuration, ranks, sources, budget))


def memory_budget(configuration: Configuration, ranks: Ranks) -> float:
    """Returns the bytes that events may fill on each rank: the smallest rank's. Collective."""
    budget = (configuration.training.memory_gib or 0) * GIB or memory_of_rank(ranks)
    return -float(all_max([-budget], ranks.device))


@dataclass(frozen=True)
class FittingCuts:
    """The numbers of sectors that events may be trained in, and those that fit `budget` bytes."""

    configuration: Configuration
    cost: CostModel
    budget: float

    def fitting(self, size: EventSize) -> dict[int, float]:
        """Returns the predicted seconds of an event in each number of sectors that fits."""
        fits = [cut for cut in self._cuts(size.stored) if self.needed(size, cut) <= self.budget]
        return {cut: self.cost.seconds(size, cut) for cut in fits}

    def needed(self, size: EventSize, cut: int) -> float:
        """Returns the bytes of a rank that trains an event in so many sectors."""
        return self.cost.memory(size, cut).total

    def least(self, size: EventSize) -> tuple[float, int]:
        """Returns the bytes and the sectors of an event where it needs least."""
        return min((self.needed(size, cut), cut) for cut in self._cuts(size.stored))

    def router(self, fitting: Sequence[Mapping[int, float]]) -> Router:
        """Makes a router of events by what `fitting` returns of each."""
        return Router(fitting, self.cost.world, lockstep=self.cost.sharding.lockstep)

    def _cuts(self, stored: int) -> list[int]:
        # Fewer naive sectors would be another training, since cut edges are left out.
        settings, world = self.configuration, self.cost.world
        if settings.training.routing == "stored" or settings.data.sectors == "naive":
            return [usable_parts(stored, world)]
        return possible_parts(stored, world)


def _predict(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource], budget: float
) -> Router:
    cost = make_cost(configuration, ranks.world_size, ranks.local_size, find_machine(None))
    cuts = FittingCuts(configuration, cost, budget)
    sizes = [source.size for source in sources]
    fitting = [cuts.fitting(size) for size in sizes]
    oversized = [i for i, fits in enumerate(fitting) if not fits]
    if oversized:
        raise InputError(
            _remedy([(sources[i], sizes[i]) for i in oversized], cost, ranks.world_size, budget)
        )
    return cuts.router(fitting)


def _remedy(
    oversized: Sequence[tuple[EventSource, EventSize]],
    cost: CostModel,
    world_size: int,
    budget: float,
) -> str:
    """Says which events do not fit, and what to do about it."""
    needed = max(oversized, key=lambda one: cost.memory(one[1], one[1].stored).total)
    parts = _smallest_parts(needed[1], cost, budget)
    names = [_named(source, size, cost, world_size) for source, size in oversized[:_NAMED]]
    more = len(oversized) - len(names)
    return (
        f"{len(oversized)} event(s) do not fit the {budget / GIB:.2f} GiB of a rank: "
        f"{', '.join(names)}{f' and {more} more' if more else ''}; "
        f"{_advice(*needed, parts)}"
    )


def _smallest_parts(size: EventSize, cost: CostModel, budget: float) -> int | None:
    """Returns the smallest power of two of sectors that fits as many ranks, or those there are.

    State that is sharded is counted as on the present ranks.
    """
    for i in range(_MOST_PARTS.bit_length()):
        more = replace(cost, world=max(cost.world, 1 << i))
        if more.memory(size, 1 << i).total <= budget:
            return 1 << i
    return None


def _named(source: EventSource, size: EventSize, cost: CostModel, world_size: int) -> str:
    parts = usable_parts(size.stored, world_size)
    where = f"in {parts} sectors" if parts > 1 else "whole"
    return f"{source.name} ({cost.memory(size, parts).total / GIB:.2f} GiB {where})"


def _advice(source: EventSource, size: EventSize, parts: int | None) -> str:
    if parts is None:
        return "no number of sectors helps: lower model.hidden, or set model.precision=bf16"
    if parts <= size.stored:
        return f"start {parts} ranks or more"
    # A folder of sectors is not cut again: its graphs are.
    folder = source.folder.path if size.stored == 1 else "GRAPHS"
    command = f"python -m partition {folder} SECTORS --parts {parts}"
    return f"cut them with {command}, add SECTORS to data.train, and start {parts} ranks or more"
