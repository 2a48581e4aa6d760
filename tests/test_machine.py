"""The machine record, of a pretended host; and the lines on its GPUs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from bigtrk import console
from bigtrk.machine import cpu_quotas, machine, memory_limits, slow_cards
from bigtrk.models.edges import fused, plain, triton_passes
from bigtrk.models.edges.states import passes_for
from bigtrk.parallel.ranks import Ranks, configure_process
from tests.programs import Run


def test_memory_limits_of_a_group_and_those_above_it(tmp_path: Path) -> None:
    job = tmp_path / "slurm" / "job"
    job.mkdir(parents=True)
    (tmp_path / "slurm" / "memory.max").write_text("max\n")
    (job / "memory.max").write_text("1000\n")
    (tmp_path / "memory.max").write_text("5000\n")
    own = tmp_path / "own"
    own.write_text("0::/slurm/job\n")
    assert sorted(memory_limits(tmp_path, own)) == [1000, 5000]
    own.write_text("0::/slurm\n")
    assert memory_limits(tmp_path, own) == [5000]
    assert memory_limits(tmp_path, tmp_path / "absent") == []

    first = tmp_path / "memory" / "job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("3000\n")
    own.write_text("5:cpu,cpuacct:/other\n4:memory:/job\n1:name=systemd:/a:b\n0::/\n")
    assert sorted(memory_limits(tmp_path, own)) == [3000, 5000]


def test_cpu_quotas_are_whole_cores_of_a_group_and_those_above_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    own = tmp_path / "own"
    own.write_text("3:cpu,cpuacct:/job\n0::/job\n")
    (job / "cpu.max").write_text("max 100000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cpu_quotas(tmp_path, own) == [1]
    first = tmp_path / "cpu" / "job"
    first.mkdir(parents=True)
    (first / "cpu.cfs_quota_us").write_text("400000\n")
    (first / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quotas(tmp_path, own) == [4, 1]
    (first / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quotas(tmp_path, own) == [1]


def test_cores_are_no_more_than_a_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr("bigtrk.machine.CGROUP", tmp_path)
    monkeypatch.setattr("bigtrk.machine.OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert machine()["cores"] == 2
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr("bigtrk.parallel.ranks.give_back_large_blocks", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    configure_process(Ranks(0, 1, 0, 1, "python"))
    assert threads == [2]


class Card(NamedTuple):
    """Holds what torch tells of a GPU."""

    name: str
    major: int
    minor: int


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has torch see GPUs, on which no tensor can be made."""

    def see(*cards: Card, hip: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cards))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cards))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: cards[0].name)
        numbered: dict[Any, Any] = {
            **dict(enumerate(cards)),
            torch.device("cuda", 0): cards[0] if cards else None,
        }
        monkeypatch.setattr(torch.cuda, "get_device_properties", numbered.__getitem__)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(console, "_warned", set())
        triton_passes._is_plain.cache_clear()

    monkeypatch.setattr(triton_passes, "_installed", lambda: True)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    yield see
    triton_passes._is_plain.cache_clear()


@pytest.mark.parametrize(
    ("card", "hip", "told"),
    [
        (
            Card("Tesla V100", 7, 0),
            None,
            "not compiled, and slower, on Tesla V100 (7.0); compiled ones need an NVIDIA GPU of "
            "compute capability 8.0",
        ),
        # They are cuda to torch for ROCm, which says 9.4 of an MI300X.
        (Card("AMD MI300X", 9, 4), "6.4.43482", "slower, on AMD MI300X (9.4)"),
    ],
)
def test_a_gpu_without_compiled_passes_takes_plain_ones_and_it_is_said_once(
    pretend: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    card: Card,
    hip: str | None,
    told: str,
) -> None:
    pretend(card, hip=hip)
    device = torch.device("cuda", 0)
    for dtype in (torch.float32, torch.bfloat16):
        assert passes_for(device, dtype) is plain
        assert not fused.usable(device, dtype, 64, 2)
    [said] = capsys.readouterr().err.splitlines()
    assert told in said


def test_doctor_and_a_training_name_slow_gpus(
    pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    pretend(Card("NVIDIA H200", 9, 0))
    assert slow_cards() is None
    v100, p100 = Card("Tesla V100", 7, 0), Card("Tesla P100", 6, 0)
    pretend(v100, Card("NVIDIA H200", 9, 0), p100, v100)
    told = str(slow_cards())
    assert "slower, on Tesla V100 (7.0), Tesla P100 (6.0); compiled" in told
    _, out, _ = run_program(["bigtrk", "doctor"])
    assert f"Warning: {told}" in out
    command = ["bigtrk", "train", "data.train=[nowhere]"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("bigtrk.program.slow_cards", lambda: told)
    status, _, errors = run_program(command)
    assert (status, f"bigtrk: warning: {told}" in errors) == (2, True)
