"""GPUs that cannot be used well are named, by stand-ins for them."""

import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import torch

from bigtrk import console
from bigtrk.cards import Card, no_network, old_driver, plain_cards, problems, small_cards
from bigtrk.errors import InputError
from bigtrk.models.edges import fused, passes_for, plain, triton_passes
from tests.programs import run_here

NEW, OLD = Card("NVIDIA H200", (9, 0), 141 * 2**30), Card("Tesla V100", (7, 0), 16 * 2**30)


class Properties(NamedTuple):
    """Holds what torch tells of a device."""

    name: str
    major: int
    minor: int
    total_memory: int


H200 = Properties("NVIDIA H200", 9, 0, 141 * 2**30)
# A host by what `pretend` takes, and what is said of it.
BAD_HOSTS: dict[str, tuple[dict[str, Any], str]] = {
    "capability": (
        {"card": Properties("Tesla V100", 7, 0, 16 * 2**30)},
        "on Tesla V100 (7.0): compiled ones need compute capability 8.0",
    ),
    "memory": (
        {"card": Properties("NVIDIA RTX A2000", 8, 6, 6 * 2**30)},
        "NVIDIA RTX A2000 has 6.0 GiB, in which few events fit whole: bigtrk plan --memory 6.0",
    ),
    "driver": (
        {"card": None, "driver": 11040},
        "torch is built for CUDA 12.8, and the driver knows CUDA 11.4 at most, so no GPU is used",
    ),
    "network": (
        {"card": H200, "chosen": "ib0"},
        "NCCL_SOCKET_IFNAME=ib0 names no network interface of this host, which has lo, eth0",
    ),
}


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    card: Properties | None,
    driver: int = 13000,
    interfaces: Sequence[str] = ("lo", "eth0"),
    chosen: str | None = None,
) -> None:
    """Has torch for CUDA 12.8 see a card, or none, and the system have these network interfaces, of
    which NCCL_SOCKET_IFNAME is `chosen`. No tensor can be made on the card.
    """

    def refuse(_: object) -> None:
        raise InputError("there is no card")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: card is not None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: driver, raising=False)
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(enumerate(interfaces, start=1)))
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    if chosen is not None:
        monkeypatch.setenv("NCCL_SOCKET_IFNAME", chosen)
    monkeypatch.setattr(console, "_warned", set())


@pytest.fixture
def v100(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host with an old GPU of little memory."""
    pretend(monkeypatch, Properties("Tesla V100", 7, 0, 4 * 2**30))
    monkeypatch.setattr(triton_passes, "_installed", lambda: True)
    triton_passes._is_plain.cache_clear()
    yield
    triton_passes._is_plain.cache_clear()


def test_old_cards_are_named_once() -> None:
    assert plain_cards([NEW]) is None
    said = plain_cards([OLD, NEW, OLD])
    assert said is not None
    assert said.count("Tesla V100 (7.0)") == 1
    assert "H200" not in said
    assert "compute capability 8.0" in said


@pytest.mark.usefixtures("v100")
def test_an_old_card_takes_plain_passes_and_it_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device = torch.device("cuda", 0)
    for _ in range(2):
        assert passes_for(device, torch.float32) is plain
        assert not fused.usable(device, torch.float32, 64, 2)
    said = capsys.readouterr().err.splitlines()
    assert sum("compute capability" in line for line in said) == 1
    assert sum("bigtrk plan --memory 4.0" in line for line in said) == 1


@pytest.mark.usefixtures("v100")
def test_amds_take_plain_passes_whatever_their_capability(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are cuda to torch for ROCm, which says 9.4 of an MI300X."""
    told = Properties("AMD Instinct MI300X", 9, 4, 192 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: told)
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    device = torch.device("cuda", 0)
    for dtype in (torch.float32, torch.bfloat16):
        assert passes_for(device, dtype) is plain
        assert not fused.usable(device, dtype, 64, 2)
    [said] = capsys.readouterr().err.splitlines()
    assert said.endswith("slower, on AMD Instinct MI300X: compiled ones are NVIDIA's")


def warnings_at_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines of a training's start, which ends for want of a card or of its data."""
    command = ["bigtrk", "train", "data.train=[nowhere]"]
    status, _, err = run_here(command, monkeypatch, capsys)
    assert status == 2
    return [line for line in err.splitlines() if line.startswith("bigtrk: warning: ")]


@pytest.mark.parametrize("problem", BAD_HOSTS)
def test_doctor_says_it_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problem: str
) -> None:
    host, said = BAD_HOSTS[problem]
    pretend(monkeypatch, **host)
    _, out, _ = run_here(["bigtrk", "doctor"], monkeypatch, capsys)
    [line] = [line for line in out.splitlines() if line.startswith("Warning: ")]
    assert said in line


@pytest.mark.parametrize("problem", BAD_HOSTS)
def test_a_training_says_it_at_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problem: str
) -> None:
    host, said = BAD_HOSTS[problem]
    pretend(monkeypatch, **host)
    [line] = warnings_at_start(monkeypatch, capsys)
    assert said in line


@pytest.mark.parametrize(("ranks_of_host", "lines"), [(1, 1), (2, 0)])
def test_a_loopback_alone_is_named_to_ranks_of_several_hosts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ranks_of_host: int,
    lines: int,
) -> None:
    pretend(monkeypatch, H200, interfaces=("lo",))
    place = {"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": ranks_of_host}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    found = warnings_at_start(monkeypatch, capsys)
    assert len(found) == lines
    assert all("no network interface but the loopback" in line for line in found)


def test_little_memory_leads_to_a_plan() -> None:
    assert small_cards([NEW, OLD]) is None
    small = small_cards([NEW, Card("GTX", (8, 6), 6 * 2**30)])
    assert small is not None
    assert "GTX has 6.0 GiB" in small
    assert "bigtrk plan --memory 6.0" in small


@pytest.mark.parametrize(
    ("version", "cuda", "said"),
    [
        (11040, "12.8", "torch is built for CUDA 12.8, and the driver knows CUDA 11.4 at most"),
        (12020, "12.8", None),  # of one major version each driver will do
        (13000, "12.8", None),
        (0, "12.8", None),  # no driver
        (11040, None, None),  # torch for CPUs
    ],
)
def test_a_driver_older_than_torch(version: int, cuda: str | None, said: str | None) -> None:
    found = old_driver(version, cuda)
    assert (found is None) == (said is None)
    assert said is None or (found is not None and found.startswith(said))


@pytest.mark.parametrize(
    ("chosen", "interfaces", "several_hosts", "said"),
    [
        (None, ["lo", "eth0"], True, None),
        (None, ["lo"], False, None),
        (None, ["lo"], True, "but the loopback, so NCCL does not reach the other hosts"),
        (None, ["lo"], None, "but the loopback, so NCCL would not reach ranks of other hosts"),
        (None, ["lo", "eth0"], None, None),
        ("eth", ["lo", "eth0"], True, None),
        ("=eth", ["lo", "eth0"], False, "NCCL_SOCKET_IFNAME==eth names no network interface"),
        ("ib0,hsn", ["lo", "eth0"], False, "which has lo, eth0"),
        ("ib0,hsn", ["lo", "hsn3"], False, None),
        ("^docker,lo", ["lo", "docker0"], False, "NCCL_SOCKET_IFNAME=^docker,lo"),
        ("^docker,lo", ["lo", "docker0", "eth0"], False, None),
    ],
)
def test_nccl_without_a_network(
    chosen: str | None, interfaces: list[str], several_hosts: bool | None, said: str | None
) -> None:
    found = no_network(chosen, interfaces, several_hosts)
    assert found is None if said is None else found is not None and said in found


def test_a_host_without_gpus_has_no_problem_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: 0, raising=False)
    assert problems() == {}
