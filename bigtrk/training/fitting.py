"""Memory and work that a configuration takes by the cost model, and remedies for events that do not
fit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU, Machine
from bigtrk.cost.model import CostModel
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.settings import Configuration

if TYPE_CHECKING:
    from bigtrk.training.steps import FittingCuts


def make_cost(
    configuration: Configuration,
    world: int,
    ranks_per_node: int,
    machine: Machine,
    shares: int = 1,
    events: float = math.inf,
) -> CostModel:
    """Makes the cost model of a configuration that trains `events` on `world` ranks."""
    return CostModel(
        configuration.model,
        len(configuration.data.node_features),
        len(configuration.data.edge_features),
        configuration.engine.sharding(world),
        world,
        ranks_per_node,
        machine,
        shares,
        configuration.training.events_per_step,
        reads_ahead=events > configuration.training.events_per_step,
        averages=configuration.training.average_decay is not None,
    )


def with_files(cost: CostModel, configuration: Configuration, budget: float | None) -> CostModel:
    """Returns the cost with edges beyond `budget` bytes in files, if that is configured."""
    spills = configuration.training.spill and cost.machine.shared
    return replace(cost, spills_beyond=budget) if spills and cost.model.spills else cost


def operations(configuration: Configuration, sizes: Sequence[tuple[float, float]]) -> list[float]:
    """Counts the operations of products that train whole graphs of (nodes, edges)."""
    flops = make_cost(configuration, 1, 1, CPU).footprint(cut=False).flops
    return [float(flops @ [edges, nodes, nodes, 1.0]) for nodes, edges in sizes]


GIB = 2**30
# Sectors beyond which cutting an event further is no remedy.
MOST_PARTS = 4096
# Events named in a message; the others are counted.
_NAMED = 5


def memory_of_cut(n_bytes: float, parts: int) -> str:
    """Writes the bytes of a cut into `parts`, rounded up: so much memory would do."""
    where = f"in {parts} sectors" if parts > 1 else "whole"
    return f"{math.ceil(100 * n_bytes / GIB) / 100:.2f} GiB {where}"


def remedy(oversized: Sequence[tuple[EventSource, EventSize]], cuts: "FittingCuts") -> str:
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


def _advice(source: EventSource, size: EventSize, cuts: "FittingCuts") -> str:
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
    """Names the setting, if not in force, that keeps edges in files or on the host, if any."""
    model = configuration.model
    if not model.keeps_edges:
        return None
    if not on_cpu:
        return None if model.offloads else "model.recompute=offload"
    fixed = "recompute" in model.model_fields_set and model.recompute != "chunk"
    is_open = not configuration.training.spill and not fixed
    return "training.spill=FOLDER of a local disk" if is_open else None
