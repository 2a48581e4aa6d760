"""Energy, utilisation and memory of the devices that train, sampled beside the training."""

import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import PowerRecord
from bigtrk.training.monitoring.nvml import Accelerator, Sample, open_accelerator
from bigtrk.training.monitoring.rapl import HostEnergy

SECONDS_BETWEEN_SAMPLES = 0.5


@dataclass(frozen=True)
class Reading:
    """One rank's readings of an epoch; joules and shares are None where nothing says them.

    accelerator: its UUID, since ranks may share it. host: its name on the rank that reads it, else
    None. absent: why `accelerator` or `host` was not read.
    """

    accelerator: str | None = None
    accelerator_joules: float | None = None
    utilisation: float | None = None
    memory: float | None = None
    host: str | None = None
    host_joules: float | None = None
    absent: dict[str, str] = field(default_factory=dict)


class Meter:
    """Reads while the training runs; `absent` says why a device is not read."""

    def __init__(
        self, accelerator: Accelerator | None, host: HostEnergy | None, absent: dict[str, str]
    ) -> None:
        self._accelerator, self._host, self._absent = accelerator, host, absent
        self._samples: list[tuple[float, Sample]] = []
        self._host_joules = 0.0
        self._counted: float | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Begins an epoch's reading."""
        self._samples, self._host_joules = [], 0.0
        if self._host:
            self._host.take()
        self._counted = self._accelerator.joules() if self._accelerator else None
        if self._accelerator or self._host:
            self._look()
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
            self._thread.start()

    def take(self) -> Reading:
        """Ends the reading, and returns it."""
        if self._thread:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._look()
        return Reading(
            accelerator=self._accelerator.uuid if self._accelerator else None,
            accelerator_joules=self._joules(),
            utilisation=_mean([sample.busy for _, sample in self._samples]),
            memory=_mean([sample.memory for _, sample in self._samples]),
            host=platform.node() if self._host or "host" in self._absent else None,
            host_joules=self._host_joules if self._host else None,
            absent=self._absent,
        )

    def _watch(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_SAMPLES):
            self._look()

    def _look(self) -> None:
        if self._accelerator:
            self._samples.append((time.perf_counter(), self._accelerator.sample()))
        if self._host:
            self._host_joules += self._host.take()

    def _joules(self) -> float | None:
        """Returns the device counter's joules, else its power integrated over the samples."""
        now = self._accelerator.joules() if self._accelerator else None
        if now is not None and self._counted is not None:
            return now - self._counted
        known = [(at, s.watts) for at, s in self._samples if s.watts is not None]
        if not known or len(known) < len(self._samples):
            return None
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(known))


def open_meter(ranks: Ranks) -> Meter:
    """Opens a meter of this rank's accelerator and, on the first rank of each host, of the host."""
    accelerator, host, absent = None, None, {}
    try:
        accelerator = open_accelerator(ranks.device)
    except LookupError as reason:
        absent["accelerator"] = str(reason)
    if ranks.local_rank == 0:
        try:
            host = HostEnergy()
        except LookupError as reason:
            absent["host"] = str(reason)
    return Meter(accelerator, host, absent)


def pooled(readings: Sequence[Reading]) -> PowerRecord:
    """Makes one of all ranks' readings: joules of distinct devices and hosts summed, shares their
    means; None where one of them is not known.
    """
    devices = {reading.accelerator: reading for reading in readings}
    hosts = [reading for reading in readings if reading.host]
    return PowerRecord(
        accelerator_joules=_sum([reading.accelerator_joules for reading in devices.values()]),
        host_joules=_sum([reading.host_joules for reading in hosts]),
        utilisation=_mean([reading.utilisation for reading in devices.values()]),
        memory=_mean([reading.memory for reading in devices.values()]),
        absent={kind: why for reading in readings for kind, why in reading.absent.items()},
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / len(values)
