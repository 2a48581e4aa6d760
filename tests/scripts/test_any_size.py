"""The script of events that exceed the memory, with small ones under a small limit."""

import ctypes
import os
import subprocess
import sys
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from bigtrk.disk.local_files import MOUNTS, _type_of
from bigtrk.errors import InputError
from bigtrk.machine import CGROUP
from scripts.docs.tables import cost_tables
from scripts.large_events.any_size import drop_pages, passed
from scripts.large_events.memory_limit import memory_group
from tests.programs import CHECKOUT


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    try:
        with memory_group(2**30, CGROUP):
            pass
    except InputError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("any")
    output = folder / "found.json"
    script = CHECKOUT / "scripts/large_events/any_size.py"
    done = subprocess.run(
        [sys.executable, script, "--quick", "--gib=2", f"--work={folder}", f"--output={output}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return read_json(output)


@pytest.mark.slow  # ten programs: half a minute
def test_both_ways_are_trained_and_the_limit_holds(found: Any) -> None:
    summary, small = found["summary"], found["small"]
    assert summary["edges"] == found["graphs"]["40M"]["edges"] > 3_000
    assert 0.1 < summary["peak_gib"] < summary["memory_limit_gib"] == 2
    assert summary["time_per_edge_ratio"] > 0
    assert small["memory"]["weights"] == small["files"]["weights"]
    assert len(set(small["memory"]["losses"])) == 4
    lines = cost_tables.any_size(found).markdown().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        "in memory",
        "in files",
        "in files, at most 2 GiB",
    ]


def pages_in_memory(path: Path) -> int:
    """Counts the pages of a file that the system has in memory: mincore(2)."""
    size = path.stat().st_size
    found = (ctypes.c_ubyte * (size // PAGESIZE))()
    with path.open("r+b") as file:
        mapped = mmap(file.fileno(), size)
        place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        assert ctypes.CDLL(None).mincore(place, ctypes.c_size_t(size), found) == 0
    return sum(page & 1 for page in found)


def test_pages_of_a_graph_are_not_kept_for_whoever_wrote_them(tmp_path: Path) -> None:
    if _type_of(tmp_path, MOUNTS) == "tmpfs":
        pytest.skip("files of a tmpfs have no other place than memory")
    graph = tmp_path / "graph"
    graph.write_bytes(bytes(16 * PAGESIZE))
    assert pages_in_memory(graph) == 16
    drop_pages(tmp_path)
    assert pages_in_memory(graph) == 0
    assert graph.read_bytes() == bytes(16 * PAGESIZE)


def test_the_table_has_the_process_beside_its_control_group() -> None:
    """A step is the median of those after the first: 4 us for an edge of the larger event."""
    took = {"step_seconds": [9.0, 1.0, 3.0, 2.0], "bytes": 2**30}
    limited = {"step_seconds": [99.0, 38.0, 42.0], "bytes": 3 * 2**30, "peak": 2**31, "disk": 5e9}
    found = {
        "graphs": {"3M": {"edges": 1_000_000}, "40M": {"edges": 10_000_000}},
        "small": {"memory": took, "files": took},
        "large": limited,
        "summary": {"memory_limit_gib": 4.0},
    }
    rows = cost_tables.any_size(found).rows
    assert rows[0] == ["in memory", "1,000,000", "2 s", "2.0 us", "1.0 GiB", "", ""]
    under = "in files, at most 4 GiB"
    assert rows[2] == [under, "10,000,000", "40 s", "4.0 us", "3.0 GiB", "2.0 GiB", "5.0 GB"]


def test_another_bit_or_a_process_ended_for_memory_fails() -> None:
    one: dict[str, Any] = {"losses": [1.0], "weights": "a"}
    large = {"status": 0, "out_of_memory": 0}
    assert passed({"memory": one, "files": one}, large)
    assert not passed({"memory": one, "files": {**one, "losses": [1.1]}}, large)
    assert not passed({"memory": one, "files": {**one, "weights": "b"}}, large)
    assert not passed({"memory": one, "files": one}, {**large, "status": 137})
    assert not passed({"memory": one, "files": one}, {**large, "out_of_memory": 1})
