"""Measures a training: time, memory, energy (NVML, RAPL), norms, and a trace."""

import math
import platform
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.profiler import profile, schedule

from bigtrk.console import say
from bigtrk.disk.files import write_atomically
from bigtrk.errors import number_of
from bigtrk.parallel.collectives import all_max, gather_items
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import World
from bigtrk.records.metrics import NormsRecord, PowerRecord, Shares

MEASURED = ("data", "exchange", "reduce")
SECONDS_BETWEEN_SAMPLES = 0.5
POWERCAP = Path("/sys/class/powercap")
# Steps of a trace: the first ones allocate and compile; the last of these warms up the profiler.
SKIPPED, RECORDED = 3, 3


class Accelerator:
    """Readings of an NVIDIA device, found by UUID, since NVML ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, uuid: str) -> None:
        """Opens the device by NVML; raises LookupError with the reason if it cannot."""
        try:
            import pynvml
        except ImportError:
            raise LookupError("nvidia-ml-py is missing: pip install 'bigtrk[power]'") from None
        self.uuid = uuid
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise LookupError(f"NVML: {error}") from None

    def sample(self) -> tuple[float | None, float | None]:
        """Returns the fraction of time a kernel ran, and of memory in use; None if unknown."""
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return busy and busy.gpu / 100, memory and memory.used / memory.total

    def joules(self) -> float | None:
        """Reads the device's energy counter; None on devices older than Volta."""
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def _ask(self, function: str) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle)
        except self._nvml.NVMLError:
            return None


def open_accelerator(device: torch.device) -> Accelerator:
    """Opens the accelerator of a rank; raises LookupError with the reason if it cannot."""
    if device.type != "cuda":
        raise LookupError("there is no accelerator")
    if torch.version.hip is not None:
        raise LookupError("NVML reads only NVIDIA's GPUs")
    return Accelerator(f"GPU-{torch.cuda.get_device_properties(device).uuid}")


class HostEnergy:
    """Energy of a host's CPUs and memory. Read often: counters wrap after 20 minutes at 200 W."""

    def __init__(self, root: Path = POWERCAP) -> None:
        """Finds the RAPL counters; raises LookupError if there are none, or none can be read."""
        domains = {path: (path / "name").read_text() for path in root.glob("intel-rapl:*")}
        counted = [path for path, name in domains.items() if name.startswith(("package", "dram"))]
        if not counted:
            raise LookupError("the host has no RAPL counters")
        try:
            self._ranges = {
                path / "energy_uj": int((path / "max_energy_range_uj").read_text())
                for path in counted
            }
            self._last = self._read()
        except OSError as error:
            raise LookupError(f"RAPL: {error.filename}: {error.strerror}") from None

    def take(self) -> float:
        """Returns the joules used since the last call."""
        before, self._last = self._last, self._read()
        passed = {path: now - before[path] for path, now in self._last.items()}
        return sum(n if n >= 0 else n + self._ranges[path] for path, n in passed.items()) / 1e6

    def _read(self) -> dict[Path, int]:
        return {path: int(path.read_text()) for path in self._ranges}


@dataclass(frozen=True)
class Reading:
    """One rank's readings over an epoch; None if unknown. accelerator: UUID, since ranks may share
    a device. host: its name, on the rank that reads it. absent: why a device was not read, by kind.
    """

    accelerator: str | None = None
    accelerator_joules: float | None = None
    utilisation: float | None = None
    memory: float | None = None
    host: str | None = None
    host_joules: float | None = None
    absent: dict[str, str] = field(default_factory=dict)


def pooled(readings: Sequence[Reading]) -> PowerRecord:
    """Combines all ranks' readings: sums joules over distinct devices and hosts, averages loads."""
    devices = {reading.accelerator: reading for reading in readings}.values()
    return PowerRecord(
        accelerator_joules=_sum([reading.accelerator_joules for reading in devices]),
        host_joules=_sum([reading.host_joules for reading in readings if reading.host]),
        utilisation=_mean([reading.utilisation for reading in devices]),
        memory=_mean([reading.memory for reading in devices]),
        absent={kind: why for reading in readings for kind, why in reading.absent.items()},
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / len(values)


class Meter:
    """Reads energy and load in a thread while training runs. absent: why a device is not read."""

    def __init__(
        self, accelerator: Accelerator | None, host: HostEnergy | None, absent: dict[str, str]
    ) -> None:
        self._accelerator, self._host, self._absent = accelerator, host, absent
        self._samples: list[tuple[float | None, float | None]] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Starts the readings of an epoch."""
        self._samples, self._host_joules = [], 0.0
        if self._host:
            self._host.take()
        self._counted = self._accelerator.joules() if self._accelerator else None
        if self._accelerator or self._host:
            self._stop.clear()
            self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
            self._thread.start()

    def take(self) -> Reading:
        """Stops the readings of the epoch and returns them."""
        if self._thread:
            self._stop.set()
            self._thread.join()
            self._thread = None
        now = self._accelerator.joules() if self._accelerator else None
        return Reading(
            accelerator=self._accelerator.uuid if self._accelerator else None,
            accelerator_joules=now - self._counted if now and self._counted else None,
            utilisation=_mean([busy for busy, _ in self._samples]),
            memory=_mean([memory for _, memory in self._samples]),
            host=platform.node() if self._host or "host" in self._absent else None,
            host_joules=self._host_joules if self._host else None,
            absent=self._absent,
        )

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._stop.wait(SECONDS_BETWEEN_SAMPLES)
            if self._accelerator:
                self._samples.append(self._accelerator.sample())
            if self._host:
                self._host_joules += self._host.take()


def open_meter(ranks: Ranks) -> Meter:
    """Opens a meter of this rank's accelerator and, on the first rank of a host, of the host."""
    accelerator, host, absent = None, None, {}
    try:
        accelerator = open_accelerator(ranks.device)
    except LookupError as reason:
        absent["accelerator"] = str(reason)
    try:
        host = HostEnergy() if ranks.local_rank == 0 else None
    except LookupError as reason:
        absent["host"] = str(reason)
    return Meter(accelerator, host, absent)


def usage(world: World, meter: Meter, seconds: float) -> dict[str, Any]:
    """Returns time shares, peak memory and power of `seconds` for an epoch's record. Collective."""
    taken = world.stopwatch.take()
    mine = {activity: taken.get(activity, 0.0) for activity in MEASURED}
    mine["compute"] = max(seconds - sum(mine.values()), 0.0)
    ranks = gather_items(mine)
    mean = {activity: sum(rank[activity] for rank in ranks) / len(ranks) for activity in mine}
    total = sum(mean.values())
    slowest = max(rank["compute"] for rank in ranks)
    return {
        "shares": Shares(**{name: x / total for name, x in mean.items()}) if total else None,
        "imbalance": slowest / mean["compute"] if mean["compute"] else 1.0,
        "peak_memory_bytes": int(all_max([world.memory.n_bytes], world.device)),
        "power": pooled(gather_items(meter.take())),
    }


@torch.no_grad()
def local_squares(engine: Engine, device: torch.device) -> tuple[list[str], Tensor]:
    """Returns the groups, and this rank's squared norms [2, groups] of gradients and weights."""
    gradients: dict[str, list[Tensor]] = {}
    weights: dict[str, list[Tensor]] = {}
    for shard in engine.shards():
        for parts, part in ((gradients, shard.gradient), (weights, shard.weight)):
            parts.setdefault(group_of(shard.name), []).extend([] if part is None else [part])
    norms = [get_total_norm(held).to(device) for held in (*gradients.values(), *weights.values())]
    return list(weights), torch.stack(norms).double().square().view(2, -1)


def norms_of(groups: Sequence[str], squares: Tensor) -> NormsRecord:
    """Makes the record of Euclidean norms, by group, of gradients before clipping and weights
    before the update. squares [2, groups]: summed over ranks. The same on all ranks.
    """
    gradient, weight = (
        {name: x if math.isfinite(x) else None for name, x in zip(groups, norms, strict=True)}
        for norms in squares.sqrt().tolist()
    )
    return NormsRecord(gradient=gradient, weight=weight)


def group_of(parameter: str) -> str:
    """Returns the group of a parameter: the first module in its dotted name, `node_encoder`, or one
    of a list, `layers.0`.
    """
    first, *rest = parameter.split(".")
    return f"{first}.{rest[0]}" if rest and rest[0].isdigit() else first


@contextmanager
def profiled(folder: Path, ranks: Ranks, n_steps: int) -> Iterator[Callable[[], None]]:
    """Writes a Perfetto trace, `folder`/trace-rankR.json.gz, of the fourth to sixth of `n_steps`
    steps (or fewer) on the first and the last rank. Yields a function to call after each step.
    """
    if ranks.rank not in (0, ranks.world_size - 1):
        yield lambda: None
        return

    def write(recorded: profile) -> None:
        path = folder / f"trace-rank{ranks.rank}.json.gz"
        with TemporaryDirectory() as private:
            # torch compresses a file with this ending; it would follow a link of this name.
            compressed = Path(private) / "trace.gz"
            recorded.export_chrome_trace(str(compressed))
            write_atomically(path, lambda temporary: shutil.copyfile(compressed, temporary))
        if ranks.is_first:
            say(
                f"trace of {number_of(active, 'step')} in {path}; open it with https://ui.perfetto.dev"
            )

    skipped = min(SKIPPED, n_steps - 1)
    warmup, active = min(1, skipped), min(RECORDED, n_steps - skipped)
    steps = schedule(wait=skipped - warmup, warmup=warmup, active=active, repeat=1)
    with profile(schedule=steps, on_trace_ready=write) as recorder:
        yield recorder.step
