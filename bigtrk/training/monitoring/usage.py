"""What an epoch used: shares of time, imbalance, memory, energy."""

import resource
from typing import Any

import torch

from bigtrk.parallel.collectives import all_max, gather_items
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.monitoring.meter import Meter, pooled

MEASURED = ("data", "exchange", "reduce")


def usage(
    stopwatch: Stopwatch, meter: Meter, seconds: float, device: torch.device
) -> dict[str, Any]:
    """Shares of `seconds` per activity (mean over ranks; what is not measured is computing),
    imbalance (slowest rank's computing / mean), peak memory of the largest rank in bytes, and
    what the meters read (training/monitoring/meter.py).

    Collective.
    """
    taken = stopwatch.take()
    mine = {activity: taken.get(activity, 0.0) for activity in MEASURED}
    mine["compute"] = max(seconds - sum(mine.values()), 0.0)
    ranks = gather_items(mine)
    mean = {activity: sum(rank[activity] for rank in ranks) / len(ranks) for activity in mine}
    total = sum(mean.values())
    slowest = max(rank["compute"] for rank in ranks)
    return {
        "shares": {activity: value / total for activity, value in mean.items()} if total else None,
        "imbalance": slowest / mean["compute"] if mean["compute"] else 1.0,
        "peak_memory_bytes": int(all_max([peak_memory(device)], device)),
        "power": pooled(gather_items(meter.take())),
    }


def peak_memory(device: torch.device) -> int:
    """Largest memory of this rank so far, in bytes: the device's, or the process's on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts ru_maxrss in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
