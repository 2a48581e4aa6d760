"""The large event's script, with a small one: all its programs, on two ranks."""

import os
import subprocess
import sys
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from scripts.docs.tables import parallel_tables
from tests.programs import CHECKOUT

pytestmark = pytest.mark.slow  # four programs and two ranks: a quarter of a minute


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("large")
    script, output = CHECKOUT / "scripts/physics/large_event.py", folder / "found.json"
    sizes = ("--quick", "--pt-min=0.5", "model.hidden=8", "model.layers=2")
    done = subprocess.run(
        [sys.executable, script, *sizes, f"--work={folder}/work", f"--output={output}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {**read_json(output), "folder": folder / "work"}


def test_the_event_is_cut_in_four_and_trained_on_two_ranks(found: Any) -> None:
    events = read_json(found["folder"] / "sectors" / "manifest.json")["events"]
    assert [record["parts"] for record in events.values()] == [4]
    steps = found["steps"]
    assert [step["routes"] for step in steps] == [{"event000000000": 4}] * 3
    assert [step["step"] for step in steps] == [0, 1, 2]
    assert all(0 < step["loss"] < 10 for step in steps)
    assert len({step["loss"] for step in steps}) == 3, "the weights change"


def test_sizes_times_and_memory_are_of_each_process(found: Any) -> None:
    summary = found["summary"]
    assert 3_000 < summary["hits"] < 6_000
    assert summary["edges"] > 2_000
    assert summary["target_efficiency"] > 0.95
    assert list(summary["gib"]) == ["simulate", "build", "partition", "rank 0", "rank 1"]
    assert all(0.05 < held < 4 for held in summary["gib"].values())
    assert list(summary["seconds"]) == ["simulate", "build", "partition", "train", "step"]
    assert 0 < summary["seconds"]["step"] < summary["seconds"]["train"]


def test_the_table_has_a_row_per_process(found: Any) -> None:
    lines = parallel_tables.large_event(found).markdown().splitlines()
    assert lines[:2] == ["| | time | memory |", "|---|--:|--:|"]
    names = [line.split("|")[1].strip() for line in lines[2:]]
    ranks = ["training, 3 steps, rank 0", "training, 3 steps, rank 1"]
    assert names == ["simulate", "build", "partition", *ranks]
