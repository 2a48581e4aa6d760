"""The script of large events, with two small ones, and the table of what it finds."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bigtrk.disk.files import read_json
from scripts.docs.tables import event_tables
from scripts.large_events import large_events
from scripts.large_events.large_events import Stage, measure, ratios, summary
from tests.programs import CHECKOUT

STAGES = ["simulate", "read event", "build", "read graph", "partition", "read sector", "evaluate"]
GIB = 2**30
CUT = {"metis_seconds": 1.0, "cut_fraction": 0.1}


def a_row(hits: int, edges: int, seconds: float, start: float = 2.0) -> dict[str, Any]:
    """A row whose stages all take as long and a start, and of whose memory partition takes most."""
    stages = {
        name: {"seconds": start + seconds, "bytes": GIB * (2 if name == "partition" else 1)}
        for name in STAGES
    }
    return {"hits": hits, "edges": edges, "metis_seconds": seconds / 2, "stages": stages}


START = a_row(1000, 1000, 0.0)
SMALL, MIDDLE, LARGE = a_row(100, 1000, 1.0), a_row(200, 4000, 6.0), a_row(300, 10_000, 9.0)


def test_ratios_are_the_worst_rates_without_the_start() -> None:
    found = ratios([SMALL, MIDDLE, LARGE], START)
    assert list(found) == STAGES
    assert found["build"] == found["evaluate"] == pytest.approx(6.0 / 4)
    assert found["simulate"] == found["read event"] == pytest.approx(6.0 / 2), "they see hits alone"


def test_the_summary_is_of_the_largest_event_and_process() -> None:
    found = summary([SMALL, LARGE], START)
    assert (found["hits"], found["edges"], found["peak_gib"]) == (300, 10_000, 2.0)
    assert found["worst_ratio"] == max(found["ratios"].values()) == pytest.approx(3.0)


def test_the_table_has_a_row_per_stage_and_metis_below_its_program() -> None:
    rows = [SMALL, LARGE]
    table = event_tables.large_events({"rows": rows, "summary": summary(rows, START)})
    cells = [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.markdown().split("\n")
    ]
    names = [row[0] for row in cells[2:]]
    assert names == ["hits", *STAGES[:5], "of it METIS", *STAGES[5:]]
    assert cells[3] == ["simulate", "3.0 s, 1.0 GiB", "11.0 s, 1.0 GiB", "3.00"]
    assert cells[8] == ["of it METIS", "0.5 s", "4.5 s", ""]


def test_sizes_take_turns_and_medians_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, turns = iter([1.0, 9.0, 2.0, 10.0, 8.0, 3.0, 4.0, 30.0]), []

    def took(stage: Stage, folder: Path) -> dict[str, float]:
        turns.append((stage.name, folder.name))
        return {"seconds": next(seconds), "bytes": len(turns) * GIB}

    held = SimpleNamespace(manifest={"events": {"e": {"nodes": 5, "edges": 7, "quality": CUT}}})
    for kind in ("GraphFolder", "SectorFolder"):
        monkeypatch.setattr(large_events, kind, lambda _: held)
    monkeypatch.setattr(large_events, "took", took)
    monkeypatch.setattr(large_events, "stages_of", lambda *_: [Stage("build", [])])
    rows = measure(tmp_path, {"small": 1, "large": 2}, 2, often=["small"])
    assert turns == [*[("build", "small")] * 3, ("build", "large")] * 2
    assert [row["stages"]["build"] for row in rows] == [
        {"seconds": 3.5, "rounds": [1.0, 9.0, 2.0, 8.0, 3.0, 4.0], "bytes": 7 * GIB},
        {"seconds": 20.0, "rounds": [10.0, 30.0], "bytes": 8 * GIB},
    ]


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
    assert [list(row["stages"]) for row in (found["start"], *found["rows"])] == [STAGES] * 3
    assert found["rows"][0]["edges"] < found["rows"][1]["edges"] == found["summary"]["edges"]
    assert 0.05 < found["summary"]["peak_gib"] < 4
