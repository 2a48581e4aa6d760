"""The script of large events, with two small ones, and the table of what it finds."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from scripts.docs.tables import event_tables
from scripts.large_events import large_events
from scripts.large_events.large_events import Stage, measure, ratios, summary
from tests.programs import CHECKOUT

STAGES = ["simulate", "read event", "build", "read graph", "partition", "read sector", "evaluate"]
GIB = 2**30
CUT = {"metis_seconds": 1.0, "cut_fraction": 0.1}


def a_row(hits: int, edges: int, seconds: float) -> dict[str, Any]:
    """A row whose stages all take as long, and of whose memory partition takes most."""
    stages = {
        name: {
            "seconds": seconds,
            "start": 2.0,
            "bytes": GIB * (2 if name == "partition" else 1),
        }
        for name in STAGES
    }
    return {"hits": hits, "edges": edges, "metis_seconds": seconds / 2, "stages": stages}


SMALL, MIDDLE, LARGE = a_row(100, 1000, 1.0), a_row(200, 4000, 6.0), a_row(300, 10_000, 9.0)


def test_ratios_are_the_worst_rates() -> None:
    found = ratios([SMALL, MIDDLE, LARGE])
    assert list(found) == STAGES
    assert found["build"] == found["evaluate"] == pytest.approx(6.0 / 4)
    assert found["simulate"] == found["read event"] == pytest.approx(6.0 / 2), "they see hits alone"


def test_the_summary_is_of_the_largest_event_and_process() -> None:
    found = summary([SMALL, LARGE])
    assert (found["hits"], found["edges"], found["peak_gib"]) == (300, 10_000, 2.0)
    assert found["worst_ratio"] == max(found["ratios"].values()) == pytest.approx(3.0)


def test_the_table_has_a_row_per_stage_and_metis_below_its_program() -> None:
    rows = [SMALL, LARGE]
    table = event_tables.large_events({"rows": rows, "summary": summary(rows)})
    cells = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.markdown().split("\n")
    ]
    names = [row[0] for row in cells[2:]]
    assert names == ["hits", *STAGES[:5], "of it METIS", *STAGES[5:]]
    assert cells[3] == ["simulate", "2.0 s", "1.0 s, 1.0 GiB", "9.0 s, 1.0 GiB", "3.00"]
    assert cells[8] == ["of it METIS", "", "0.5 s", "4.5 s", ""]


def test_sizes_take_turns_and_medians_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, turns = iter([1.0, 9.0, 2.0, 10.0, 8.0, 3.0, 4.0, 30.0]), []

    def took(stage: Stage, least: Stage) -> dict[str, float]:
        turns.append((stage.command, least.command))
        return {"seconds": next(seconds), "start": len(turns), "bytes": len(turns) * GIB}

    held = SimpleNamespace(manifest={"events": {"e": {"nodes": 5, "edges": 7, "quality": CUT}}})
    for kind in ("GraphFolder", "SectorFolder"):
        monkeypatch.setattr(large_events, kind, lambda _: held)
    monkeypatch.setattr(large_events, "took", took)
    monkeypatch.setattr(
        large_events, "stages_of", lambda _, folder, __: [Stage("build", [folder.name])]
    )
    rows = measure(tmp_path, {"small": 1, "large": 2}, 2, often=["small"])
    assert turns == [*[(["small"], ["least"])] * 3, (["large"], ["least"])] * 2
    assert [row["stages"]["build"] for row in rows] == [
        {"seconds": 3.5, "rounds": [1.0, 9.0, 2.0, 8.0, 3.0, 4.0], "start": 4, "bytes": 7 * GIB},
        {"seconds": 20.0, "rounds": [10.0, 30.0], "start": 6, "bytes": 8 * GIB},
    ]


def test_a_stage_is_timed_beyond_the_least_event_and_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes 3 s to start, 0.5 s for the least event, and 2 s for the other."""
    now, made = [0.0], tmp_path / "made"
    passing = iter([3.5, 0.5, 2.5])

    def read(_: Path) -> None:
        assert not made.exists(), "what the event before left is gone"
        made.mkdir()
        now[0] += next(passing)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setitem(large_events.READINGS, "build", read)

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        printed = json.dumps(large_events.run_stage(command[-2], json.loads(command[-1])))
        return SimpleNamespace(returncode=0, stdout=f"reading\n{printed}\n")

    monkeypatch.setattr(subprocess, "run", run)
    stage = Stage("build", ["events"], made)
    found = large_events.took(stage, stage)
    assert found["start"] == pytest.approx(3.5)
    assert found["seconds"] == pytest.approx(2.0)


def test_a_stage_that_fails_is_named(tmp_path: Path) -> None:
    stage = Stage("partition", ["partition", str(tmp_path / "none"), str(tmp_path / "sectors")])
    with pytest.raises(InputError, match="partition ended with status 2"):
        large_events.took(stage, stage)


@pytest.mark.slow  # two dozen programs: a minute and a half
def test_all_stages_of_two_small_events(tmp_path: Any) -> None:
    script, output = CHECKOUT / "scripts/large_events/large_events.py", tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, script, "--quick", f"--work={tmp_path}/work", f"--output={output}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = read_json(output)
    assert [list(row["stages"]) for row in found["rows"]] == [STAGES] * 2
    assert found["rows"][0]["edges"] < found["rows"][1]["edges"] == found["summary"]["edges"]
    assert 0.05 < found["summary"]["peak_gib"] < 4
