"""Utilisation and energy of accelerators (NVML) and hosts (RAPL) while a training runs."""

import platform
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bigtrk.parallel.collectives import all_max, gather_items
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import World
from bigtrk.records.metrics import PowerRecord, Shares

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


MISSING = "nvidia-ml-py is not installed: pip install 'bigtrk[power]'"


@dataclass(frozen=True)
class Sample:
    """One look: the share of the last moment that a kernel ran, the share of memory in use, power
    in watts. Values that the accelerator does not say, as a MIG slice, are None.
    """

    busy: float | None
    memory: float | None
    watts: float | None


class Accelerator:
    """An NVIDIA device, found by the UUID that torch gives: NVML ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, uuid: str) -> None:
        """Opens the device.

        Raises:
            LookupError: NVML is not there, or does not know the device; the message says so.
        """
        try:
            import pynvml
        except ImportError:
            raise LookupError(MISSING) from None
        self.uuid = uuid
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise LookupError(f"NVML: {error}") from None

    def sample(self) -> Sample:
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Sample(
            busy=None if busy is None else busy.gpu / 100,
            memory=None if memory is None else memory.used / memory.total,
            watts=None if milliwatts is None else milliwatts / 1000,
        )

    def joules(self) -> float | None:
        """Reads the device's energy counter, which older devices than Volta do not have."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def _ask(self, function: str) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle)
        except self._nvml.NVMLError:
            return None


def open_accelerator(device: torch.device) -> Accelerator:
    """Opens the accelerator of a rank.

    Raises:
        LookupError: there is none, or NVML cannot be asked; the message says why.
    """
    if device.type != "cuda":
        raise LookupError("there is no accelerator")
    if torch.version.hip is not None:
        raise LookupError("NVML reads NVIDIA's GPUs alone")
    return Accelerator(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


POWERCAP = Path("/sys/class/powercap")


@dataclass
class _Counter:
    """A counter of microjoules that starts again from zero above `most`."""

    path: Path
    most: int
    last: int

    def advance(self) -> int:
        """Returns the microjoules since the last call, if it has started again at most once."""
        now = _number(self.path)
        passed = now - self.last if now >= self.last else now + self.most - self.last
        self.last = now
        return passed


class HostEnergy:
    """The packages of a host and, where they are counted, their memory.

    A package of 200 W starts again every 20 minutes: ask more often.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        """Finds the counters.

        Raises:
            LookupError: there are no counters, or they are not this user's to read.
        """
        domains = [path for path in sorted(root.glob("intel-rapl:*")) if _counts(path)]
        if not domains:
            raise LookupError("the host has no RAPL counters")
        try:
            self._counters = [
                _Counter(path / "energy_uj", _number(path / "max_energy_range_uj"), 0)
                for path in domains
            ]
            self.take()
        except OSError as error:
            raise LookupError(f"RAPL: {error.filename}: {error.strerror}") from None

    def take(self) -> float:
        """Returns the joules since the last call."""
        return sum(counter.advance() for counter in self._counters) / 1e6


def _counts(domain: Path) -> bool:
    """Says whether a domain adds to the sum: cores lie in their package, psys holds all others."""
    name = (domain / "name").read_text().strip()
    return name.startswith("package") or name == "dram"


def _number(path: Path) -> int:
    return int(path.read_text())


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
