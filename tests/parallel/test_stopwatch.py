"""Time per activity: on the host's clock, and on that of an accelerator which nobody waits for."""

import time
from dataclasses import dataclass

import pytest
import torch

from bigtrk.parallel.world import Stopwatch

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@dataclass
class QueueingGPU:
    """An accelerator with a clock of its own [ms]; it counts how often the host waits for it."""

    clock: float = 0.0
    waits: int = 0

    def event(self, enable_timing: bool = False) -> "Event":
        assert enable_timing
        return Event(self)


@dataclass
class Event:
    gpu: QueueingGPU
    at: float | None = None

    def record(self) -> None:
        self.at = self.gpu.clock

    def synchronize(self) -> None:
        self.gpu.waits += 1

    def elapsed_time(self, end: "Event") -> float:
        assert self.at is not None
        assert end.at is not None
        assert self.gpu.waits, "it has not been waited for"
        return end.at - self.at


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> QueueingGPU:
    made = QueueingGPU()

    def stop() -> None:
        made.waits += 1

    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "synchronize", stop)
    return made


def exchange(stopwatch: Stopwatch, gpu: QueueingGPU, milliseconds: float) -> None:
    with stopwatch.time("exchange"):
        gpu.clock += milliseconds


def test_what_is_queued_is_waited_for_at_the_end_alone(gpu: QueueingGPU) -> None:
    stopwatch = Stopwatch(GPU)
    for milliseconds in (3, 4):
        exchange(stopwatch, gpu, milliseconds)
        gpu.clock += 50  # computing
    assert gpu.waits == 0
    assert stopwatch.take() == pytest.approx({"exchange": 0.007})
    assert stopwatch.take() == {}


def test_a_pause_leaves_out_what_is_queued_in_it(gpu: QueueingGPU) -> None:
    stopwatch = Stopwatch(GPU)
    exchange(stopwatch, gpu, 3)
    with stopwatch.paused():
        exchange(stopwatch, gpu, 100)
    exchange(stopwatch, gpu, 4)
    assert stopwatch.take() == pytest.approx({"exchange": 0.007})


def test_a_cpu_is_on_the_hosts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stopwatch = Stopwatch(CPU)
    with stopwatch.time("exchange"):
        now[0] += 2
    stopwatch.add("reduce", 1.0)
    assert stopwatch.take() == {"exchange": 2.0, "reduce": 1.0}
