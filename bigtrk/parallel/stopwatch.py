"""The time of a step: seconds added up per activity."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bigtrk.tracing import traced


class Stopwatch:
    """Adds up seconds per activity name; a profiler's trace has the activity too.

    On an accelerator each reading of `time` waits for the device; otherwise a collective's time
    would be booked on whatever happens to synchronise next. `time_queued` does not wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._seconds: dict[str, float] = defaultdict(float)
        self._queued: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def now(self) -> float:
        if self._on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def time(self, activity: str) -> Iterator[None]:
        start = self.now()
        try:
            with traced(activity):
                yield
        finally:
            self._seconds[activity] += self.now() - start

    @contextmanager
    def time_queued(self, activity: str) -> Iterator[None]:
        """Adds the time from where the accelerator begins what the block gives it to where it is
        done; nobody waits for that before `take`.
        """
        if not self._on_cuda:
            with self.time(activity):
                yield
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        try:
            with traced(activity):
                yield
        finally:
            end.record()
            self._queued.append((activity, start, end))

    def add(self, activity: str, seconds: float) -> None:
        self._seconds[activity] += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out what is timed inside the block."""
        seconds = self.take()
        try:
            yield
        finally:
            self.take()
            self._seconds.update(seconds)

    def take(self) -> dict[str, float]:
        """Returns the seconds since the last call, per activity, and starts again from zero."""
        for activity, start, end in self._queued:
            end.synchronize()
            self._seconds[activity] += start.elapsed_time(end) / 1000  # ms
        self._queued.clear()
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds
