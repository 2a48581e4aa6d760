"""The cuts that each event may be trained in, by a rank's memory and the work of each.

Work is the roofline of what is counted (cost/model.py): it tells ranks with more to do from those
with less, and no prediction of seconds. Rank 0 counts once, before training, for all: two hosts may
round differently.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import find_machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import all_max, on_first_rank
from bigtrk.parallel.host import memory_of_rank
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import (
    Cut,
    Router,
    as_stored,
    even_cut,
    finer_cuts,
    merged_cuts,
    usable_parts,
)
from bigtrk.training.costs import make_cost, with_files
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration

GIB = 2**30
# Events named in a message; the others are counted.
_NAMED = 5
# Sectors beyond which cutting an event further is no remedy.
MOST_PARTS = 4096


def scoring_router(
    sources: Sequence[EventSource], world_size: int, several: bool = False
) -> Router:
    """Makes a router that scores each event in its sectors, over as many ranks as there are.

    several: a rank may compute more than one of them, so that none are merged, which would take
    memory that no plan counts.
    """
    sizes = [(source.parts, source.record["edges"]) for source in sources]
    return as_stored(sizes, world_size, several=several)


def training_router(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource]
) -> Router:
    """Makes a router that knows each event's cost and the sectors that fit. Collective.

    Raises:
        InputError: events do not fit a rank's memory in the sectors that they are stored in, on
            these ranks.
    """
    budget = memory_budget(configuration, ranks)
    return on_first_rank(_fit, configuration, ranks, sources, budget)


def memory_budget(configuration: Configuration, ranks: Ranks) -> float:
    """Returns the bytes that events may fill on each rank: the smallest rank's. Collective."""
    budget = (configuration.training.memory_gib or 0) * GIB or memory_of_rank(ranks)
    return -float(all_max([-budget], ranks.device))


def fitting_cuts(
    configuration: Configuration, ranks: Ranks, n_events: int, budget: float
) -> "FittingCuts":
    """Makes the cuts of a training on `n_events` events."""
    cost = make_cost(
        configuration, ranks.world_size, ranks.local_size, find_machine(None), events=n_events
    )
    return FittingCuts(configuration, cost, budget)


def _fit(
    configuration: Configuration, ranks: Ranks, sources: Sequence[EventSource], budget: float
) -> Router:
    cuts = fitting_cuts(configuration, ranks, len(sources), budget)
    sizes = [source.size for source in sources]
    fitting = [cuts.fitting(size) for size in sizes]
    oversized = [i for i, fits in enumerate(fitting) if not fits]
    if oversized:
        raise InputError(_remedy([(sources[i], sizes[i]) for i in oversized], cuts))
    return Router(fitting, ranks.world_size, cuts.cost.sharding.lockstep, cuts.apart)


@dataclass(frozen=True)
class FittingCuts:
    """The cuts that an event may be trained in, and those of them that fit `budget` bytes."""

    configuration: Configuration
    cost: CostModel
    budget: float

    @property
    def apart(self) -> bool:
        """Whether sectors are trained without each other."""
        return self.configuration.data.sectors == "naive"

    def fitting(self, size: EventSize) -> dict[Cut, float]:
        """Returns the work of the cuts that fit, the first kind of which any does; those with edges
        in files come last.
        """
        for cost in self._ways:
            for cuts in self.cuts(size.stored):
                fits = [cut for cut in cuts if cost.memory(size, *cut).total <= self.budget]
                if fits:
                    return {cut: cost.seconds(size, *cut) for cut in fits}
        return {}

    def needed(self, size: EventSize, cut: Cut) -> float:
        """Returns the least bytes of memory that a cut takes, in memory or with edges in files:
        those of a small event take less than the blocks they travel in.
        """
        return min(cost.memory(size, *cut).total for cost in self._ways)

    @property
    def _ways(self) -> list[CostModel]:
        """Returns the cost with all edges in memory, and that with edges in files, if allowed."""
        in_files = with_files(self.cost, self.configuration, self.budget)
        return [self.cost] if in_files.spills_beyond is None else [self.cost, in_files]

    def least(self, size: EventSize) -> tuple[float, Cut]:
        """Returns the bytes and the cut of an event where it needs least."""
        return min((self.needed(size, cut), cut) for cut in chain(*self.cuts(size.stored)))

    def cuts(self, stored: int) -> list[list[Cut]]:
        """Lists the cuts of an event in `stored` sectors: those with one on each rank, which has
        fewest halo rows, and then those with several.
        """
        world = self.cost.world
        if self.apart:
            # Fewer would be another training, since cut edges are left out.
            return [[Cut(stored, stored)]]
        layered = self.cost.footprint(cut=False).layered
        if self.configuration.training.routing == "stored":
            merged = usable_parts(stored, world)
            return [[even_cut(stored, world) if layered else Cut(merged, merged)]]
        return [merged_cuts(stored, world), finer_cuts(stored, world) if layered else []]

    def by_parts(self, size: EventSize) -> list[tuple[float, Cut]]:
        """Lists the bytes that an event takes of the present ranks in powers of two of sectors,
        into which it may have to be cut first.
        """
        world, layered = self.cost.world, self.cost.footprint(cut=False).layered
        cuts = []
        for parts in (1 << i for i in range(MOST_PARTS.bit_length())):
            if self.apart:
                cut = Cut(parts, parts)
            elif layered:
                cut = even_cut(parts, world)
            else:
                cut = Cut(parts, usable_parts(parts, world))
            cuts.append((self.needed(size, cut), cut))
        return cuts


def memory_of_cut(n_bytes: float, parts: int) -> str:
    """Writes the bytes of a cut into `parts`, rounded up: so much memory would do."""
    where = f"in {parts} sectors" if parts > 1 else "whole"
    return f"{math.ceil(100 * n_bytes / GIB) / 100:.2f} GiB {where}"


def _remedy(oversized: Sequence[tuple[EventSource, EventSize]], cuts: FittingCuts) -> str:
    """Says which events do not fit, and what to do about it."""
    tried = {source.name: cuts.least(size) for source, size in oversized}
    source, size = max(oversized, key=lambda one: tried[one[0].name])
    named = islice(tried.items(), _NAMED)
    names = [f"{name} ({memory_of_cut(least, cut.parts)})" for name, (least, cut) in named]
    more = len(oversized) - len(names)
    # Rounded down: less than what an event needs that it is too little for.
    budget = math.floor(100 * cuts.budget / GIB + 1e-6) / 100
    return (
        f"{len(oversized)} event(s) do not fit the {budget:.2f} GiB of a rank: "
        f"{', '.join(names)}{f' and {more} more' if more else ''}; "
        f"{_advice(source, size, cuts)}"
    )


def _advice(source: EventSource, size: EventSize, cuts: FittingCuts) -> str:
    """Says how an event might fit: cut into more sectors, or else by other settings."""
    needed = cuts.by_parts(size)
    fitting = [cut.parts for n_bytes, cut in needed if n_bytes <= cuts.budget]
    if not fitting:
        least, cut = min(cuts.least(size), *needed)
        away = setting_away(cuts.configuration, cuts.cost.machine.shared)
        setting = f"{away}, " if away else ""
        limited = cuts.configuration.training.memory_gib is not None
        more = "raise training.memory_gib" if limited else "take hosts with more memory"
        return (
            f"no number of sectors helps on {cuts.cost.world} rank(s), the least is "
            f"{memory_of_cut(least, cut.parts)}: set {setting}model.precision=bf16, lower "
            f"model.hidden, or add ranks, or {more}"
        )
    if fitting[0] <= size.stored and not cuts.apart:
        return "set training.routing=automatic, which merges sectors"
    # A folder of sectors is not cut again: its graphs are.
    folder = source.folder.path if size.stored == 1 else "GRAPHS"
    command = f"python -m partition {folder} SECTORS --parts {fitting[0]}"
    return f"cut them with {command}, and add SECTORS to data.train"


def setting_away(configuration: Configuration, on_cpu: bool) -> str | None:
    """Names the setting, if it is not in force, that keeps edges between layers in files or, those
    of an accelerator, on its host; None for models that keep none.
    """
    model = configuration.model
    if not model.keeps_edges:
        return None
    if not on_cpu:
        return None if model.offloads else "model.recompute=offload"
    fixed = "recompute" in model.model_fields_set and model.recompute != "chunk"
    is_open = not configuration.training.spill and not fixed
    return "training.spill=FOLDER of a local disk" if is_open else None
