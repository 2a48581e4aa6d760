"""A rank's view of the job: its own rank, groups of ranks, stopwatch and peak memory."""

import resource
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bigtrk.parallel.ranks import Ranks
from bigtrk.tracing import traced

_STATUS = Path("/proc/self/status")
_FIELDS = ("VmHWM:", "RssFile:", "RssAnon:")  # the lines read from it
Moment = float | torch.cuda.Event  # on the host's clock, or on that of an accelerator
Groups = Mapping[int, dist.ProcessGroup]  # K -> group of this rank's aligned block of K ranks


class Stopwatch:
    """Sums seconds by the name of an activity, which a profiler's trace shows, too.

    An accelerator's own clock times its activities; only `take` waits for the accelerator.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._seconds: dict[str, float] = defaultdict(float)
        self._queued: list[tuple[str, Any, Any]] = []  # two events of CUDA each

    @contextmanager
    def time(self, activity: str) -> Iterator[None]:
        """Adds the device's time from the block's first operation to its last."""
        start = self.moment()
        try:
            with traced(activity):
                yield
        finally:
            self.add_since(activity, start)

    def moment(self) -> Moment:
        """Returns the present time, or an event that an accelerator records in its stream."""
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add_since(self, activity: str, start: Moment) -> None:
        """Adds the time from `start` to this moment to `activity`."""
        end = self.moment()
        if isinstance(start, float) and isinstance(end, float):
            self.add(activity, end - start)
        else:
            self._queued.append((activity, start, end))

    def add(self, activity: str, seconds: float) -> None:
        self._seconds[activity] += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of activities inside the block."""
        seconds = self.take()
        try:
            yield
        finally:
            self.take()
            self._seconds.update(seconds)

    def take(self) -> dict[str, float]:
        """Returns the seconds of each activity since the last call, and resets them to zero."""
        for activity, start, end in self._queued:
            end.synchronize()
            self._seconds[activity] += start.elapsed_time(end) / 1000  # ms
        self._queued.clear()
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds


class PeakMemory:
    """Tracks the peak memory of this process without pages of files, or the peak of its GPU.

    The kernel reports the peak only with pages of files, so their bytes at that moment are
    subtracted; the process's own memory at each `look` counts as well. If `status` does not give
    these numbers (as in gVisor), pages of files are included.
    """

    def __init__(self, device: torch.device, status: Path = _STATUS) -> None:
        self._device, self._status = device, status
        self._highest = self._own = 0

    def look(self) -> None:
        """Updates the peak. Call it at a peak, while its pages are still mapped."""
        if self._device.type == "cuda":
            return
        lines = (line.split() for line in self._status.read_text().splitlines())
        known = {line[0]: int(line[1]) * 1024 for line in lines if line[0] in _FIELDS}
        if len(known) < len(_FIELDS):
            self._own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            return
        self._own = max(self._own, known["RssAnon:"])
        if known["VmHWM:"] > self._highest:
            self._highest = known["VmHWM:"]
            self._own = max(self._own, self._highest - known["RssFile:"])

    @property
    def n_bytes(self) -> int:
        """The peak memory so far in bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        self.look()
        return self._own


@dataclass(frozen=True)
class World:
    """A rank's view of the job, for all code that trains or scores.

    groups: for each number of ranks, the process group in which this rank shares an event.
    stopwatch, memory: this rank's.
    """

    ranks: Ranks
    groups: Groups
    stopwatch: Stopwatch
    memory: PeakMemory

    @property
    def device(self) -> torch.device:
        return self.ranks.device

    def overlaps(self, num_ranks: int) -> bool:
        """Whether layers compute while the halo rows of an event on `num_ranks` ranks travel: on
        GPUs, and between hosts. Within a host of CPUs the cores that compute also move the rows.
        """
        return self.device.type == "cuda" or num_ranks > self.ranks.local_size


def make_world(ranks: Ranks, num_ranks: Iterable[int] = ()) -> World:
    """Makes the groups for events on `num_ranks` ranks, the same numbers on all ranks. Collective.

    Without any, one rank takes each event whole.
    """
    groups: dict[int, dist.ProcessGroup] = {}
    for size in sorted(set(num_ranks) - {1}):
        for first in range(0, ranks.world_size - size + 1, size):
            members = range(first, first + size)
            group = dist.new_group(list(members))  # all ranks take part
            if ranks.rank in members:
                groups[size] = group
    return World(ranks, groups, Stopwatch(ranks.device), PeakMemory(ranks.device))
