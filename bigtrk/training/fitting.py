"""Counts memory and work of a configuration; finds the cuts of events that fit, and remedies."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice

from bigtrk.config import apply_overrides
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU, Machine, find_machine
from bigtrk.cost.model import CostModel
from bigtrk.errors import InputError, number_of, shell_word
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.ranks import Ranks, memory_of_rank
from bigtrk.parallel.routing import Cut, even_cut, finer_cuts, possible_parts, usable_parts
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration

GIB = 2**30
# Sectors beyond which cutting an event further is no remedy.
MOST_PARTS = 4096
# Events named in a message; the others are counted.
_NAMED = 5


def make_cost(
    configuration: Configuration,
    world: int,
    ranks_per_node: int,
    machine: Machine,
    events: float = math.inf,
) -> CostModel:
    """Makes the cost model of a configuration that trains `events` events on `world` ranks."""
    return CostModel(
        configuration.model,
        len(configuration.data.node_features),
        len(configuration.data.edge_features),
        configuration.engine.sharding(world),
        world,
        ranks_per_node,
        machine,
        configuration.training.events_per_step,
        reads_ahead=events > configuration.training.events_per_step,
        averages=configuration.training.average_decay is not None,
    )


def with_files(cost: CostModel, configuration: Configuration, budget: float | None) -> CostModel:
    """Returns the cost model, with edges beyond `budget` bytes in files if that is configured."""
    spills = configuration.training.spill and cost.machine.shared
    return replace(cost, spills_beyond=budget) if spills and cost.model.spills else cost


def operations(configuration: Configuration, sizes: Sequence[tuple[float, float]]) -> list[float]:
    """Counts, for each graph of (nodes, edges), the operations of matrix products to train it."""
    flops = make_cost(configuration, 1, 1, CPU).footprint(cut=False).flops
    return [float(flops @ [edges, nodes, nodes, 1.0]) for nodes, edges in sizes]


def memory_budget(configuration: Configuration, ranks: Ranks) -> float:
    """Returns the bytes that events may fill on every rank, by the smallest rank. Collective."""
    budget = (configuration.training.memory_gib or 0) * GIB or memory_of_rank(ranks)
    return -float(all_max([-budget], ranks.device))


def fitting_cuts(
    configuration: Configuration, ranks: Ranks, n_events: int, budget: float
) -> "FittingCuts":
    """Makes the FittingCuts of a training on `n_events` events."""
    cost = make_cost(
        configuration, ranks.world_size, ranks.local_size, find_machine(None), events=n_events
    )
    return FittingCuts(configuration, cost, budget)


@dataclass(frozen=True)
class FittingCuts:
    """The cuts in which an event may be trained, and which of them fit in `budget` bytes."""

    configuration: Configuration
    cost: CostModel
    budget: float

    @property
    def apart(self) -> bool:
        """Whether sectors are trained alone, without halo exchange (naive)."""
        return self.configuration.data.sectors == "naive"

    def fitting(self, size: EventSize) -> dict[Cut, float]:
        """Returns the seconds of each cut that fits; edges go to files if nothing else fits."""
        for cost in self._ways:
            for cuts in self.cuts(size.stored):
                fits = [cut for cut in cuts if cost.memory(size, *cut).total <= self.budget]
                if fits:
                    return {cut: cost.seconds(size, *cut) for cut in fits}
        return {}

    def needed(self, size: EventSize, cut: Cut) -> float:
        """Returns the least bytes per rank that `cut` needs, with edges in memory or in files."""
        return min(cost.memory(size, *cut).total for cost in self._ways)

    @property
    def _ways(self) -> list[CostModel]:
        """Lists the cost models to try: all edges in memory, then in files if that is allowed."""
        in_files = with_files(self.cost, self.configuration, self.budget)
        return [self.cost] if in_files.spills_beyond is None else [self.cost, in_files]

    def least(self, size: EventSize) -> tuple[float, Cut]:
        """Returns the least bytes per rank that an event needs, and the cut that needs them."""
        return min((self.needed(size, cut), cut) for cut in chain(*self.cuts(size.stored)))

    def least_of_all(self, size: EventSize) -> tuple[float, Cut]:
        """Returns the same as `least` if the event may be cut again, in any number of sectors."""
        return min(self.least(size), *self.by_parts(size))

    def cuts(self, stored: int) -> list[list[Cut]]:
        """Lists the cuts of an event: first with one sector per rank, then with several."""
        world = self.cost.world
        if self.apart:
            # Fewer sectors would change the training, since cut edges are left out.
            return [[Cut(stored, stored)]]
        layered = self.cost.footprint(cut=False).layered
        if self.configuration.training.routing == "stored":
            merged = usable_parts(stored, world)
            return [[even_cut(stored, world) if layered else Cut(merged, merged)]]
        merged_cuts = [Cut(parts, parts) for parts in possible_parts(stored, world)]
        return [merged_cuts, finer_cuts(stored, world) if layered else []]

    def by_parts(self, size: EventSize) -> list[tuple[float, Cut]]:
        """Lists bytes per rank and cut of an event in 1, 2, 4, ... sectors."""
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
    """Writes the memory of a cut in `parts` sectors, in GiB, rounded up so that it suffices."""
    where = f"in {parts} sectors" if parts > 1 else "whole"
    return f"{math.ceil(100 * n_bytes / GIB) / 100:.2f} GiB {where}"


def remedy(oversized: Sequence[tuple[EventSource, EventSize]], cuts: FittingCuts) -> str:
    """Writes a message: the events that do not fit, and what to do."""
    tried = {source.name: cuts.least(size) for source, size in oversized}
    source, size = max(oversized, key=lambda one: tried[one[0].name])
    named = islice(tried.items(), _NAMED)
    names = [f"{name} ({memory_of_cut(least, cut.parts)})" for name, (least, cut) in named]
    more = len(oversized) - len(names)
    # Rounded down, so that it shows as less than what the event needs.
    budget = math.floor(100 * cuts.budget / GIB + 1e-6) / 100
    do = "does" if len(oversized) == 1 else "do"
    return (
        f"{number_of(len(oversized), 'event')} {do} not fit the {budget:.2f} GiB of a rank: "
        f"{', '.join(names)}{f' and {more} more' if more else ''}; "
        f"{_advice(source, size, cuts)}"
    )


def _advice(source: EventSource, size: EventSize, cuts: FittingCuts) -> str:
    """Advises how to make an event fit: by more sectors, or else by other settings."""
    fitting = [cut.parts for n_bytes, cut in cuts.by_parts(size) if n_bytes <= cuts.budget]
    if not fitting:
        least, cut = cuts.least_of_all(size)
        limited = cuts.configuration.training.memory_gib is not None
        more = "raise training.memory_gib" if limited else "take hosts with more memory"
        settings = " or ".join(_fitting_settings(size, cut, cuts))
        return (
            f"no number of sectors helps on {number_of(cuts.cost.world, 'rank')}, the least is "
            f"{memory_of_cut(least, cut.parts)}: {f'set {settings}, or ' if settings else ''}"
            f"lower model.hidden, add ranks, or {more}"
        )
    if fitting[0] <= size.stored and not cuts.apart:
        return "set training.routing=automatic, which merges sectors"
    # Sectors cannot be cut again, so the command names the folder of graphs.
    folder = shell_word(source.folder.path) if size.stored == 1 else "GRAPHS"
    command = f"python -m partition {folder} SECTORS --parts {fitting[0]}"
    return f"cut them with {command}, and add SECTORS to data.train"


def _fitting_settings(size: EventSize, cut: Cut, cuts: FittingCuts) -> list[str]:
    """Lists the overrides each of which makes an event fit in `cut`, by counted memory."""
    found, away = [], setting_away(cuts.configuration, cuts.cost.machine.shared)
    for setting in filter(None, (away, "model.recompute=chunk", "model.precision=bf16")):
        content = cuts.configuration.model_dump(mode="json")
        with suppress(InputError):  # the model has no such setting
            changed = apply_overrides(Configuration, content, [setting], "the remedy")
            cost = replace(cuts.cost, model=changed.model)
            if FittingCuts(changed, cost, cuts.budget).needed(size, cut) <= cuts.budget:
                found.append(setting)
    return found


def setting_away(configuration: Configuration, on_cpu: bool) -> str | None:
    """Returns the override that moves edges to files or to the host; None if none is left."""
    model = configuration.model
    if not model.keeps_edges:
        return None
    if not on_cpu:
        return None if model.offloads else "model.recompute=offload"
    fixed = "recompute" in model.model_fields_set and model.recompute != "chunk"
    is_open = not configuration.training.spill and not fixed
    return "training.spill=FOLDER of a local disk" if is_open else None
