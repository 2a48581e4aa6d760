"""Chooses the settings that a run leaves open (recomputation, engine, sectors) by counted memory.

Candidates are tried in a fixed order, and the first that fits is taken. No candidate changes what
is trained. Seconds are not compared: `bigtrk plan --choose --try` measures them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import get_args

import numpy as np

from bigtrk.config import apply_overrides
from bigtrk.console import say
from bigtrk.cost.event_size import MOST_EXCESS, EventSize
from bigtrk.cost.machines import Machine, find_machine
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.engines.spec import engine_spec
from bigtrk.parallel.ranks import FILLED, Ranks
from bigtrk.parallel.routing import Cut
from bigtrk.parallel.settings import ENGINES
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.fitting import GIB, FittingCuts, make_cost, memory_budget, setting_away
from bigtrk.training.settings import Configuration

# The part of a rank's memory that a short training may be seen to fill. Recorded peaks were 1 to
# 4 % above the least limit of a control group in which the same ranks trained.
MEASURED = 0.98
_THOUSANDTHS = 1000  # of a GiB, as a command line shows memory
# The number of events that represent a data set, which may have many thousands.
_EVENTS = 32
# The most sectors in which cuts were measured (cost/event_size.py).
_MOST_SECTORS = 256

Values = tuple[tuple[str, str], ...]  # by dotted key
_IN_MEMORY = ("training.spill", "null")


@dataclass(frozen=True)
class Candidate:
    """Values for the open settings, by dotted key."""

    values: Values

    @property
    def overrides(self) -> list[str]:
        """Lists the values as overrides of a command line, "key.sub=value"."""
        return [f"{key}={value}" for key, value in self.values]

    def configured(self, configuration: Configuration) -> Configuration:
        """Returns `configuration` with these values set."""
        content = configuration.model_dump(mode="json")
        return apply_overrides(Configuration, content, self.overrides, "the choice")


@dataclass(frozen=True)
class Limit:
    """A rank's memory in bytes, and the fraction `share` of it that counted bytes may fill."""

    memory: float
    share: float = FILLED

    @property
    def budget_gib(self) -> float:
        """Returns the GiB that counted bytes may fill, rounded down to three decimals."""
        filled = self.share * self.memory / GIB
        return filled if self.share == 1 else math.floor(_THOUSANDTHS * filled) / _THOUSANDTHS

    @property
    def budget(self) -> float:
        return self.budget_gib * GIB

    def holds(self, peak_bytes: float) -> bool:
        """Whether a measured peak of `peak_bytes` fits in the memory."""
        return peak_bytes <= MEASURED * self.memory

    def enough_gib(self, n_bytes: float) -> float:
        """Returns the least memory of a rank, in GiB, whose budget holds `n_bytes`."""
        filled = math.ceil(_THOUSANDTHS * n_bytes / GIB) / _THOUSANDTHS
        return math.ceil(_THOUSANDTHS * filled / self.share) / _THOUSANDTHS


@dataclass(frozen=True)
class Task:
    """The run whose settings are chosen. cuttable: whole events may still be cut in sectors."""

    configuration: Configuration
    sizes: Sequence[EventSize]
    world: int
    ranks_per_node: int
    machine: Machine
    limit: Limit
    cuttable: bool = False

    @property
    def sectors(self) -> list[int]:
        """Lists the numbers of sectors to try for whole events; the least gives each rank work."""
        if not self.cuttable or all(size.stored > 1 for size in self.sizes):
            return [1]
        needed = -(-self.world // self.configuration.training.events_per_step)
        return [1 << i for i in range(_MOST_SECTORS.bit_length()) if 1 << i >= needed]

    def events(self, sectors: int) -> list[EventSize]:
        """Returns a sample of event sizes, with the largest. Whole events count as cut in
        `sectors`, whose largest one has a size that nine of ten cuts do not exceed.
        """
        spread = sorted(self.sizes, key=lambda size: (size.edges, size.nodes))
        if len(spread) > _EVENTS:
            places = np.linspace(0, len(spread) - 1, _EVENTS).round().astype(int)
            most_nodes = max(self.sizes, key=lambda size: size.nodes)
            spread = [most_nodes, *(spread[i] for i in places)]
        return [
            replace(size, stored=sectors, excess=MOST_EXCESS) if size.stored == 1 else size
            for size in spread
        ]


@dataclass(frozen=True)
class Option:
    """A candidate, with whole events cut in `sectors`. memory: bytes on the fullest rank, or the
    least possible if it does not fit. cut: of the possible cuts, the one with most sectors.
    """

    candidate: Candidate
    sectors: int
    memory: float
    fits: bool
    cut: Cut

    @property
    def engine(self) -> str:
        """Returns the chosen engine's name; "" if the configuration sets the engine."""
        return dict(self.candidate.values).get("engine.name", "")

    def __str__(self) -> str:
        parts, on_a_rank = self.cut.parts, self.cut.most_on_a_rank
        cut = "whole events" if parts == 1 else f"events in up to {parts} sectors"
        several = f", {on_a_rank} sectors on a rank" if on_a_rank > 1 else ""
        return ", ".join([*self.candidate.overrides, cut]) + several


def options(task: Task) -> Iterator[Option]:
    """Yields all options in the order of trial: edges in memory before edges in files, `ddp` before
    sharding, less recomputation before more, few sectors before many.
    """
    for candidate in candidates(task.configuration, task.world, task.machine.shared):
        for sectors in task.sectors:
            yield counted(task, candidate, sectors)


def choose(task: Task) -> list[Option]:
    """Returns the options tried, up to and with the first that fits; InputError if none does."""
    considered = []
    for option in options(task):
        considered.append(option)
        if option.fits:
            return considered
    raise InputError(_too_little(task, considered))


def candidates(configuration: Configuration, world: int, on_cpu: bool) -> list[Candidate]:
    """Lists the candidates in the order of `options`. Recomputation by `offload` is left out, since
    a rank's share of its host's memory is unknown. Edges go to files only on a CPU with `chunk`.
    """
    model = configuration.model
    field = type(model).model_fields.get("recompute")
    known = (
        get_args(field.annotation) if field and "recompute" not in model.model_fields_set else ()
    )
    ways = [value for value in known if value != "offload"]
    in_memory: list[Values] = [(("model.recompute", value),) for value in ways] or [()]
    in_files: list[Values] = []
    if configuration.training.spill and ways:
        in_memory = [(*values, _IN_MEMORY) for values in in_memory]
        in_files = [(("model.recompute", "chunk"),)] if on_cpu else []
    engines = _engines(configuration, world)
    return [
        Candidate((*way, *engine))
        for place in (in_memory, in_files)
        for engine, way in product(engines, place)
    ]


def _engines(configuration: Configuration, world: int) -> list[Values]:
    """Lists the engines to try, from `ddp` to the most sharded; only the configured one if set."""
    if configuration.engine.model_fields_set:
        return [()]
    whole = configuration.optimizer.name == "muon"
    found: list[Values] = [
        (("engine.name", name),)
        for name, spec in ((name, engine_spec(name)) for name in ENGINES)
        if spec.automatic and (spec.whole_matrices or not whole)
    ]
    return found[:1] if world == 1 else found  # one rank has nobody to share its state with


def counted(task: Task, candidate: Candidate, sectors: int) -> Option:
    """Returns the option of `candidate` and `sectors`, with the memory that its best cuts need."""
    configuration = candidate.configured(task.configuration)
    cost = make_cost(
        configuration, task.world, task.ranks_per_node, task.machine, events=len(task.sizes)
    )
    cuts = FittingCuts(configuration, cost, task.limit.budget)
    sizes = task.events(sectors)
    fitting = [list(cuts.fitting(size)) for size in sizes]
    if not all(fitting):
        memory, cut = max(cuts.least(size) for size in sizes)
        return Option(candidate, sectors, memory, False, cut)
    memory = max(
        cuts.needed(size, cut) for size, own in zip(sizes, fitting, strict=True) for cut in own
    )
    return Option(candidate, sectors, memory, True, max(chain(*fitting)))


def _too_little(task: Task, considered: Sequence[Option]) -> str:
    least, limit = min(considered, key=lambda one: one.memory), task.limit
    setting = setting_away(task.configuration, task.machine.shared)
    filled = f", of which {limit.share:.0%} may be filled" if limit.share < 1 else ""
    return (
        f"no choice of settings fits all events in the {limit.memory / GIB:.3f} GiB of a "
        f"rank{filled}; at least {limit.enough_gib(least.memory):.3f} GiB are needed, with "
        f"{least}; give each rank more memory, {f'set {setting}, ' if setting else ''}add ranks, "
        f"cut the events into more sectors or lower model.hidden"
    )


def settle(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource]
) -> Configuration:
    """Returns the configuration with the open settings that rank 0 chose. Routing later chooses the
    sectors within the same memory. Collective. Raises InputError if no choice fits all events.
    """
    available = memory_budget(configuration, ranks)
    given = configuration.training.memory_gib is not None
    limit = Limit(available, 1) if given else Limit(available / FILLED)
    sizes, world = [source.size for source in sources], ranks.world_size
    task = Task(configuration, sizes, world, ranks.local_size, find_machine(None), limit)

    def chosen() -> Candidate:
        try:
            found = choose(task)[-1]
        except InputError as error:
            raise InputError(f"training.auto: {error}") from None
        counted = f"needs {found.memory / GIB:.2f} of {limit.budget_gib:.2f} GiB per rank"
        say(f"training.auto: chose {found}; {counted}")
        if given:
            return found.candidate
        return Candidate((*found.candidate.values, ("training.memory_gib", str(limit.budget_gib))))

    return on_first_rank(chosen).configured(configuration)
