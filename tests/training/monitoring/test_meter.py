"""Energy, utilisation and memory, read from a stand-in for NVML and from counters in files."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bigtrk.parallel.ranks import Ranks
from bigtrk.training.monitoring import meter
from bigtrk.training.monitoring.meter import (
    Accelerator,
    HostEnergy,
    Meter,
    Reading,
    Sample,
    open_meter,
    pooled,
)

UUID = "GPU-1234"


class FakeNvml(ModuleType):
    """One device; a function named in `refused` is not supported, as on a MIG slice."""

    class NVMLError(Exception):
        pass

    def __init__(self, *refused: str) -> None:
        super().__init__("pynvml")
        self.refused = refused
        self.millijoules = 5_000_000

    def nvmlInit(self) -> None:  # noqa: N802
        self._allow("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != UUID:
            raise self.NVMLError("Not Found")
        return f"handle of {uuid}"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        self._allow("utilisation", handle)
        return SimpleNamespace(gpu=75, memory=20)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        self._allow("memory", handle)
        return SimpleNamespace(used=20 * 2**30, total=80 * 2**30)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        self._allow("power", handle)
        return 350_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self._allow("energy", handle)
        self.millijoules += 40_000
        return self.millijoules

    def _allow(self, what: str, handle: str = f"handle of {UUID}") -> None:
        assert handle == f"handle of {UUID}"
        if what in self.refused:
            raise self.NVMLError("Not Supported")


def accelerator(monkeypatch: pytest.MonkeyPatch, *refused: str) -> Accelerator:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*refused))
    return Accelerator(UUID)


def read(device: Accelerator) -> Reading:
    one = Meter(device, None, {})
    one.start()
    return one.take()


def test_sample_is_in_shares_and_watts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerator(monkeypatch).sample() == Sample(busy=0.75, memory=0.25, watts=350.0)


def test_energy_is_the_difference_of_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(accelerator(monkeypatch))
    assert reading.accelerator_joules == pytest.approx(40.0)
    assert (reading.utilisation, reading.memory) == (0.75, 0.25)
    assert reading.accelerator == UUID


def test_energy_without_a_counter_is_power_times_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times: Iterator[float] = iter((10.0, 14.0))
    monkeypatch.setattr(meter, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    reading = read(accelerator(monkeypatch, "energy"))
    assert reading.accelerator_joules == pytest.approx(4.0 * 350.0)


def test_what_a_device_does_not_say_is_absent_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read(accelerator(monkeypatch, "energy", "power", "utilisation"))
    assert reading.accelerator_joules is None
    assert reading.utilisation is None
    assert reading.memory == 0.25


def test_samples_are_taken_while_the_training_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "SECONDS_BETWEEN_SAMPLES", 1e-3)
    device = accelerator(monkeypatch)
    looks: list[Sample] = []
    enough = threading.Event()
    sample = device.sample

    def look() -> Sample:
        looks.append(sample())
        if len(looks) > 5:
            enough.set()
        return looks[-1]

    monkeypatch.setattr(device, "sample", look)
    one = Meter(device, None, {})
    one.start()
    assert enough.wait(timeout=300)
    one.take()
    taken = len(looks)
    enough.clear()
    assert not enough.wait(timeout=0.05), "sampled on after the reading"
    assert len(looks) == taken


@pytest.mark.parametrize(
    ("module", "uuid", "why"),
    [
        (None, UUID, "bigtrk[power]"),
        (FakeNvml("nvmlInit"), UUID, "NVML: Not Supported"),
        (FakeNvml(), "GPU-other", "NVML: Not Found"),
    ],
)
def test_accelerator_that_cannot_be_read_says_why(
    monkeypatch: pytest.MonkeyPatch, module: Any, uuid: str, why: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(LookupError) as raised:
        Accelerator(uuid)
    assert why in str(raised.value)


def test_device_is_found_by_the_uuid_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    properties = SimpleNamespace(uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert meter.open_accelerator(torch.device("cuda", 0)).uuid == UUID


def test_amds_are_not_looked_for_in_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # whose want would be the reason
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    with pytest.raises(LookupError, match="NVIDIA's GPUs alone"):
        meter.open_accelerator(torch.device("cuda", 0))


def domain(root: Path, zone: str, name: str, microjoules: int) -> Path:
    folder = root / f"intel-rapl:{zone}"
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")
    return folder / "energy_uj"


def test_host_energy_counts_packages_and_memory_once(tmp_path: Path) -> None:
    package = domain(tmp_path, "0", "package-0", 9_000_000)
    memory = domain(tmp_path, "0:1", "dram", 1_000_000)
    cores = domain(tmp_path, "0:0", "core", 0)
    host = HostEnergy(tmp_path)
    package.write_text("1000000")  # past its largest value: 2 J on
    memory.write_text("1500000")
    cores.write_text("900000")
    assert host.take() == pytest.approx(2.5)
    assert host.take() == 0.0


def test_host_without_counters_says_so(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no RAPL counters"):
        HostEnergy(tmp_path)


def test_counters_that_are_not_readable_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = domain(tmp_path, "0", "package-0", 0)
    read_text = Path.read_text

    def guarded(path: Path, *arguments: Any, **options: Any) -> str:
        if path == package:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", guarded)
    with pytest.raises(LookupError, match="Permission denied"):
        HostEnergy(tmp_path)


def test_meter_of_a_host_sums_what_passed(tmp_path: Path) -> None:
    counter = domain(tmp_path, "0", "package-0", 0)
    one = Meter(None, HostEnergy(tmp_path), {"accelerator": "there is no accelerator"})
    counter.write_text("9000000")  # before the epoch
    one.start()
    counter.write_text("9500000")
    reading = one.take()
    assert reading.host_joules == pytest.approx(0.5)
    assert reading.host is not None
    assert reading.accelerator_joules is None


def test_ranks_are_pooled_by_device_and_host() -> None:
    shared = Reading("GPU-a", 100.0, 0.5, 0.2, "h", None, {"host": "no counters"})
    other = Reading("GPU-b", 50.0, 0.9, 0.4)
    found = pooled([shared, Reading("GPU-a", 101.0, 0.5, 0.2), other])
    assert found.accelerator_joules == pytest.approx(151.0)
    assert found.utilisation == pytest.approx(0.7)
    assert found.host_joules is None
    assert found.absent == {"host": "no counters"}


def test_one_unread_host_leaves_the_sum_unknown() -> None:
    hosts = [Reading(host="a", host_joules=3.0), Reading(), Reading(host="b", host_joules=None)]
    assert pooled(hosts[:2]).host_joules == 3.0
    assert pooled(hosts).host_joules is None


def test_only_the_first_rank_of_a_host_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "device", torch.device("cpu"))
    first, second = (open_meter(Ranks(rank, 2, rank, 2, "test")).take() for rank in range(2))
    assert first.host is not None
    assert second.host is None
    assert second.absent == {"accelerator": "there is no accelerator"}
