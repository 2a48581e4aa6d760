"""The usage of an epoch: shares of time, imbalance, memory, energy."""

import resource
from dataclasses import dataclass
from pathlib import Path

import torch

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
        peak_memory_bytes=int(all_max([peak_memory(world.device)], world.device)),
        power=pooled(gather_items(meter.take())),
    )


def peak_memory(device: torch.device) -> int:
    """Returns this rank's largest memory so far in bytes: the device's, on a CPU the process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return own_peak(Path("/proc/self/status"))


def own_peak(status: Path) -> int:
    """Returns the largest memory of this process so far without the pages of files, in bytes.

    Those of libraries (0.2 GB) are there once for all ranks of a host, and the system drops what it
    needs elsewhere: with them the same process took 350 to 441 MiB in one day, without 246.0 to
    246.3. Where `status` does not tell (gVisor's) they are in.
    """
    lines = (line.split() for line in status.read_text().splitlines())
    known = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in ("VmHWM:", "RssFile:")}
    if len(known) < 2:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return known["VmHWM:"] - known["RssFile:"]
