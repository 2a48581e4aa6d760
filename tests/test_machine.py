"""The machine record, read from files of a pretended host."""

import os
from pathlib import Path

import pytest
import torch

from bigtrk.machine import cpu_model, cpu_quotas, machine, memory_limits, software
from bigtrk.parallel.host import configure_process
from bigtrk.parallel.ranks import Ranks


def test_cpu_model_is_the_first_named(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: other\n")
    assert cpu_model(cpuinfo) == "Fast CPU @ 3 GHz"
    assert cpu_model(tmp_path / "absent") != ""


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


def test_memory_limits_of_the_first_version(tmp_path: Path) -> None:
    job = tmp_path / "memory" / "job"
    job.mkdir(parents=True)
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (job / "memory.limit_in_bytes").write_text("1000\n")
    own = tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/other\n4:memory:/job\n1:name=systemd:/a:b\n0::/\n")
    assert sorted(memory_limits(tmp_path, own)) == [1000, 9223372036854771712]


def test_cpu_quotas_are_whole_cores_of_a_group_and_those_above_it(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    own = tmp_path / "own"
    own.write_text("3:cpu,cpuacct:/job\n0::/job\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_quotas(tmp_path, own) == []
    (job / "cpu.max").write_text("350000 100000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cpu_quotas(tmp_path, own) == [3, 1]
    first = tmp_path / "cpu" / "job"
    first.mkdir(parents=True)
    (first / "cpu.cfs_quota_us").write_text("400000\n")
    (first / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quotas(tmp_path, own) == [4, 3, 1]
    (first / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quotas(tmp_path, own) == [3, 1]


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
    monkeypatch.setattr("bigtrk.parallel.host.give_back_large_blocks", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    configure_process(Ranks(0, 1, 0, 1, "python"))
    assert threads == [2]


def test_records_name_what_a_reader_asks_for() -> None:
    assert machine()["cores"] >= 1
    assert machine()["memory_bytes"] > 0
    assert software()["torch"] is not None
