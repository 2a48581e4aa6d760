"""Tests how `bigtrk plan --choose` is compared with its rivals: what is drawn, run and counted."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigtrk.cost.machine_constants import CPU
from bigtrk.disk.files import read_json, write_json
from scripts.bench.choice_draw import CHOICE, draws
from scripts.bench.plan_choice import compared, fitted, summary, told
from scripts.large_events.limited_ranks import Outcome
from tests.programs import CHECKOUT
from tests.scripts.test_memory_limit import real


class Known:
    """A bench that knows what a second run gives."""

    def __init__(self, again: dict[str, float | None]) -> None:
        self._again, self.asked = again, list[str]()

    def run(self, name: str, _: Any, again: bool) -> Outcome:
        assert again
        self.asked.append(name)
        seconds = self._again[name]
        return Outcome(seconds, 0, seconds is None)


def outcomes(**seconds: float | None) -> dict[str, Outcome]:
    return {name: Outcome(one, 0, one is None) for name, one in seconds.items()}


def test_draws_depend_on_the_seed_alone() -> None:
    assert draws(30, 0) == draws(30, 0)
    assert draws(30, 0)[:5] == draws(5, 0)
    assert draws(30, 0) != draws(30, 1)
    assert {draw.ranks for draw in draws(30, 0)} == {1, 2, 3, 4}


def test_a_choice_that_seems_slow_is_run_again_as_its_rival_is() -> None:
    bench: Any = Known({CHOICE: 1.05, "rival": 1.0})
    runs = {CHOICE: [""], "rival": [""], "killed": [""], "other": [""]}
    found = compared(bench, runs, outcomes(choice=1.5, rival=0.9, killed=None))
    assert found == {CHOICE: 1.05, "rival": 0.9}
    assert bench.asked == ["rival", CHOICE]
    bench = Known({})
    near = compared(bench, runs, outcomes(choice=1.0, rival=0.95))
    assert (near, bench.asked) == ({CHOICE: 1.0, "rival": 0.95}, [])
    assert compared(bench, runs, outcomes(choice=None, rival=1.0)) == {"rival": 1.0}


def test_what_does_not_fit_when_it_is_run_again_does_not_count() -> None:
    """The next fastest does, and the choice is run again once."""
    runs = {CHOICE: [""], "rival": [""], "other": [""]}
    bench: Any = Known({CHOICE: 1.4, "rival": None, "other": 1.1})
    known = outcomes(choice=1.5, rival=0.9, other=1.0)
    assert compared(bench, runs, known) == {CHOICE: 1.4, "other": 1.0}
    assert bench.asked == ["rival", CHOICE, "other"]
    assert known["rival"].out_of_memory
    bench = Known({CHOICE: None, "rival": 1.0})
    known = outcomes(choice=1.5, rival=0.9)
    assert compared(bench, runs, known) == {"rival": 0.9}
    assert known[CHOICE].out_of_memory


def row(ratio: float | None) -> dict[str, Any]:
    return {"ratio": ratio, "runs": {CHOICE: {"out_of_memory": ratio is None}}}


def test_the_last_line_counts() -> None:
    rows = [row(1.0), row(1.1), row(1.11), row(None)]
    assert summary(rows) == {"runs": 4, "out_of_memory": 1, "within_10_percent": 2}


@real
@pytest.mark.slow  # some minutes
def test_a_draw_is_measured_and_remembered(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    calibration = tmp_path / "work/cache/bigtrk/calibration.json"  # one takes half an hour
    write_json(calibration, CPU.model_dump(mode="json"))
    command = [sys.executable, "-m", "scripts.bench.plan_choice", "--draws", "1", "--seed", "3"]
    command += ["--work", str(tmp_path / "work"), "--output", str(output)]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=CHECKOUT, env=dict(os.environ), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found = read_json(output)
        assert found["summary"]["runs"] == 1
        assert found["summary"]["out_of_memory"] == 0
        assert found["fewest_rivals"] == fitted(found["draws"][0]) >= 8
    (only,) = found["draws"]
    assert told(only) in done.stdout.replace("\n", " ")
    choice = only["runs"][CHOICE]
    assert 0 < choice["peak_bytes"] <= only["limit_gib"] * 2**30
