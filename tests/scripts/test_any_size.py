"""The script of events that exceed the memory, with small ones under a small limit."""

import os
import subprocess
import sys
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.machine import CGROUP
from scripts.docs.tables import cost_tables
from scripts.large_events.any_size import passed
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


def test_another_bit_or_a_process_ended_for_memory_fails() -> None:
    one: dict[str, Any] = {"losses": [1.0], "weights": "a"}
    large = {"status": 0, "out_of_memory": 0}
    assert passed({"memory": one, "files": one}, large)
    assert not passed({"memory": one, "files": {**one, "losses": [1.1]}}, large)
    assert not passed({"memory": one, "files": {**one, "weights": "b"}}, large)
    assert not passed({"memory": one, "files": one}, {**large, "status": 137})
    assert not passed({"memory": one, "files": one}, {**large, "out_of_memory": 1})
