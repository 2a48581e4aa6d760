"""Tests limits of memory that the kernel enforces: in real control groups where this process may
make them, and in pretended folders of both versions.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bigtrk.errors import InputError
from scripts.large_events.memory_limit import ONE, TWO, MemoryGroup, find_version, memory_group
from tests.programs import CHECKOUT

MIB = 2**20


def holding(mib: int) -> list[str]:
    """Returns a command that fills so much memory."""
    return [sys.executable, "-c", f"held = bytearray(b'1') * ({mib} * 2**20); print(len(held))"]


def may_limit() -> bool:
    try:
        with memory_group(100 * MIB):
            return True
    except InputError:
        return False


real = pytest.mark.skipif(not may_limit(), reason="this user may not make control groups")


@real
def test_what_fits_runs_and_its_peak_is_read() -> None:
    with memory_group(400 * MIB) as group:
        assert group.run(holding(200), stdout=subprocess.DEVNULL) == 0
        assert 200 * MIB <= group.peak() <= 400 * MIB
        assert group.kills() == 0
    assert not group.folder.exists()


@real
def test_what_does_not_fit_is_ended_by_the_kernel() -> None:
    with memory_group(100 * MIB) as group:
        assert group.run(holding(200), stdout=subprocess.DEVNULL) != 0
        assert group.kills() == 1
        assert group.peak() <= 100 * MIB
    assert not group.folder.exists()


@real
def test_processes_that_are_left_end_with_the_group() -> None:
    with memory_group(100 * MIB) as group:
        group.run(["sh", "-c", "sleep 100 >/dev/null 2>&1 & echo $!"], stdout=subprocess.DEVNULL)
        left = (group.folder / "cgroup.procs").read_text().split()
        assert len(left) == 1
    assert not Path(f"/proc/{left[0]}").exists() or "Z" in Path(f"/proc/{left[0]}/stat").read_text()
    assert not group.folder.exists()


@real
def test_the_program_prints_what_was_taken() -> None:
    program = [sys.executable, "-m", "scripts.large_events.memory_limit"]
    command = [*program, "--gib", "0.1", *holding(200)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["out_of_memory"] == 1
    assert done.returncode == found["status"] % 256 != 0
    assert found["peak_bytes"] <= found["limit_bytes"] == int(0.1 * 2**30)


def test_both_versions_are_found(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "memory").mkdir(parents=True)
    (one / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert find_version(one) == (one / "memory", ONE)
    two.mkdir()
    (two / "cgroup.controllers").write_text("cpu memory pids\n")
    (two / "cgroup.subtree_control").write_text("cpu\n")
    assert find_version(two) == (two, TWO)
    assert (two / "cgroup.subtree_control").read_text() == "+memory"


@pytest.mark.parametrize(
    ("version", "files", "expected"),
    [
        (
            ONE,
            ("memory.swappiness", "memory.memsw.limit_in_bytes"),
            {
                "memory.limit_in_bytes": "1000",
                "memory.swappiness": "0",
                "memory.memsw.limit_in_bytes": "1000",
            },
        ),
        (ONE, (), {"memory.limit_in_bytes": "1000"}),
        (TWO, ("memory.swap.max",), {"memory.max": "1000", "memory.swap.max": "0"}),
    ],
)
def test_limits_leave_no_swap(
    tmp_path: Path, version: object, files: tuple[str, ...], expected: dict[str, str]
) -> None:
    for name in files:
        (tmp_path / name).write_text("max")
    assert version in (ONE, TWO)
    group = MemoryGroup(tmp_path, ONE if version is ONE else TWO, 1000)
    group.limit_memory()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == expected


def test_ended_processes_are_counted(tmp_path: Path) -> None:
    group = MemoryGroup(tmp_path, TWO, 1000)
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n")
    (tmp_path / "memory.peak").write_text("990\n")
    assert (group.kills(), group.peak()) == (2, 990)


def test_a_host_without_them_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"cannot limit memory .* run this as root"),
        memory_group(1000, tmp_path),
    ):
        pass
