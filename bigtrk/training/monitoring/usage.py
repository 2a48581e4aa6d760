"""The usage of an epoch: shares of time, imbalance, memory, energy."""

from dataclasses import dataclass

from bigtrk.parallel.collectives import all_max, gather_items
from bigtrk.parallel.world import World
from bigtrk.records.metrics import PowerRecord, Shares
from bigtrk.training.monitoring.meter import Meter, pooled

MEASURED = ("data", "exchange", "reduce")


@dataclass(frozen=True)
class Usage:
    """Shares of the mean rank's time (None of no time), imbalance (the slowest rank's computing
    over the mean's), peak memory of the largest rank in bytes, and what the meters read.
    """

    shares: Shares | None
    imbalance: float
    peak_memory_bytes: int
    power: PowerRecord


def usage(world: World, meter: Meter, seconds: float) -> Usage:
    """Measures what `seconds` of training used since the last call; what the stopwatch does not
    measure of them is computing. Collective.
    """
    taken = world.stopwatch.take()
    mine = {activity: taken.get(activity, 0.0) for activity in MEASURED}
    mine["compute"] = max(seconds - sum(mine.values()), 0.0)
    ranks = gather_items(mine)
    mean = {activity: sum(rank[activity] for rank in ranks) / len(ranks) for activity in mine}
    total = sum(mean.values())
    slowest = max(rank["compute"] for rank in ranks)
    shares = {activity: value / total for activity, value in mean.items()} if total else None
    return Usage(
        shares=None if shares is None else Shares(**shares),
        imbalance=slowest / mean["compute"] if mean["compute"] else 1.0,
        peak_memory_bytes=int(all_max([world.memory.n_bytes], world.device)),
        power=pooled(gather_items(meter.take())),
    )
