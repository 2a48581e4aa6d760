"""The machine record, read from files of a pretended host."""

from pathlib import Path

from bigtrk.machine import cgroup_limits, cpu_model, machine, software


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
    assert sorted(cgroup_limits(tmp_path, own)) == [1000, 5000]
    own.write_text("0::/slurm\n")
    assert cgroup_limits(tmp_path, own) == [5000]
    assert cgroup_limits(tmp_path, tmp_path / "absent") == []


def test_memory_limits_of_the_first_version(tmp_path: Path) -> None:
    job = tmp_path / "memory" / "job"
    job.mkdir(parents=True)
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (job / "memory.limit_in_bytes").write_text("1000\n")
    own = tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/other\n4:memory:/job\n1:name=systemd:/a:b\n0::/\n")
    assert sorted(cgroup_limits(tmp_path, own)) == [1000, 9223372036854771712]


def test_records_name_what_a_reader_asks_for() -> None:
    assert machine()["cores"] >= 1
    assert machine()["memory_bytes"] > 0
    assert software()["torch"] is not None
