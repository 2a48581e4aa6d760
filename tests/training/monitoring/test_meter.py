"""Energy, utilisation and memory, read from a stand-in for NVML and from counters in files."""

import sys
import threading
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
    open_accelerator,
    open_meter,
    pooled,
)

UUID = "GPU-1234"


class FakeNvml(ModuleType):
    """One device; a function that is `refused` is not supported, as on a MIG slice."""

    class NVMLError(Exception):
        pass

    def __init__(self, *refused: str) -> None:
        super().__init__("pynvml")
        self.refused, self.millijoules = refused, 5_000_000
        self.read = threading.Event()

    def nvmlInit(self) -> None:  # noqa: N802
        if "init" in self.refused:
            raise self.NVMLError("Not Supported")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != UUID:
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        return self._allow("utilisation", handle, SimpleNamespace(gpu=75, memory=20))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        self.read.set()
        return self._allow("memory", handle, SimpleNamespace(used=20 * 2**30, total=80 * 2**30))

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self.millijoules += 40_000
        return int(self._allow("energy", handle, self.millijoules))

    def _allow(self, what: str, handle: str, value: Any) -> Any:
        assert handle == "handle"
        if what in self.refused:
            raise self.NVMLError("Not Supported")
        return value


def test_an_accelerator_is_read_while_the_training_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(meter, "SECONDS_BETWEEN_SAMPLES", 1e-3)
    one = Meter(Accelerator(UUID), None, {})
    one.start()
    assert nvml.read.wait(timeout=300)
    reading = one.take()
    assert reading.accelerator_joules == pytest.approx(40.0)
    assert reading.utilisation == pytest.approx(0.75)
    assert reading.memory == pytest.approx(0.25)
    assert reading.accelerator == UUID
    nvml.read.clear()
    assert not nvml.read.wait(timeout=0.05), "sampled on after the reading"


def test_what_cannot_be_read_is_absent_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without counters, and those that say why none is read."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("energy", "utilisation"))
    one = Meter(Accelerator(UUID), None, {})
    one.start()
    reading = one.take()
    assert (reading.accelerator_joules, reading.utilisation, reading.memory) == (None, None, 0.25)
    for module, uuid, why in (
        (None, "1234", r"bigtrk\[power\]"),
        (FakeNvml("init"), "1234", "NVML: Not Supported"),
        (FakeNvml(), "other", "NVML: Not Found"),
    ):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        device = SimpleNamespace(uuid=uuid)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, device=device: device)
        with pytest.raises(LookupError, match=why):
            open_accelerator(torch.device("cuda"))


def domain(root: Path, name: str, kind: str, microjoules: int) -> Path:
    folder = root / f"intel-rapl:{name}"
    folder.mkdir()
    (folder / "name").write_text(f"{kind}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")
    return folder / "energy_uj"


def test_host_energy_counts_packages_and_memory_once(tmp_path: Path) -> None:
    package = domain(tmp_path, "0", "package-0", 8_000_000)
    memory = domain(tmp_path, "0:1", "dram", 1_000_000)
    cores = domain(tmp_path, "0:0", "core", 0)
    one = Meter(None, HostEnergy(tmp_path), {"accelerator": "there is no accelerator"})
    package.write_text("9000000")  # before the epoch
    one.start()
    package.write_text("1000000")  # past its largest value: 2 J on
    memory.write_text("1500000")
    cores.write_text("900000")
    reading = one.take()
    assert reading.host_joules == pytest.approx(2.5)
    assert (reading.host is not None, reading.accelerator_joules) == (True, None)


def test_counters_that_are_not_there_or_not_readable_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LookupError, match="no RAPL counters"):
        HostEnergy(tmp_path)
    package = domain(tmp_path, "0", "package-0", 0)
    read_text = Path.read_text

    def guarded(path: Path, *arguments: Any, **options: Any) -> str:
        if path == package:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", guarded)
    with pytest.raises(LookupError, match="Permission denied"):
        HostEnergy(tmp_path)


def test_ranks_are_pooled_by_device_and_host() -> None:
    shared = Reading("GPU-a", 100.0, 0.5, 0.2, "h", None, {"host": "no counters"})
    other = Reading("GPU-b", 50.0, 0.9, 0.4)
    found = pooled([shared, Reading("GPU-a", 101.0, 0.5, 0.2), other])
    assert found.accelerator_joules == pytest.approx(151.0)
    assert found.utilisation == pytest.approx(0.7)
    assert found.host_joules is None
    assert found.absent == {"host": "no counters"}
    hosts = [Reading(host="a", host_joules=3.0), Reading(), Reading(host="b", host_joules=None)]
    assert pooled(hosts[:2]).host_joules == 3.0
    assert pooled(hosts).host_joules is None, "one of them was not read"


def test_only_the_first_rank_of_a_host_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "device", torch.device("cpu"))
    first, second = (open_meter(Ranks(rank, 2, rank, 2, "test")).take() for rank in range(2))
    assert first.host is not None
    assert second.host is None
    assert second.absent == {"accelerator": "there is no accelerator"}
