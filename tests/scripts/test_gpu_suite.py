"""The command for a machine with a card: its parts one by one, and that it writes nothing here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from scripts import results
from scripts.docs.tables import gpu_tables
from scripts.gpu import gpu_suite
from scripts.gpu.gpu_parts.extent import Extent
from scripts.gpu.gpu_suite import PARTS, arguments_of, run_parts, summary, table
from tests.programs import CHECKOUT


def steps(name: str) -> dict[str, Any]:
    """The rows of a graph: ours takes half of the other's time and a tenth of its memory."""
    rows = [
        {"side": side, "hidden": hidden, "seconds": seconds * hidden, "peak_bytes": n_bytes}
        for hidden in (64, 128)
        for side, seconds, n_bytes in (("bigtrk bf16", 1e-3, 1e9), ("PyG fp32", 2e-3, 1e10))
    ]
    ours = {"mfu": 0.2, "bandwidth": 0.5}
    rows = [{**row, **(ours if row["side"] == "bigtrk bf16" else {})} for row in rows]
    none = {"side": "PyG bf16", "hidden": 64, "seconds": None, "peak_bytes": None}
    return {"graph": name, "origin": "drawn", "nodes": 9, "edges": 90, "rows": [*rows, none]}


def test_the_last_line_has_the_goals() -> None:
    event = steps("event 1000")
    found = {"steps_event1000": event, "plain_event1000": event, "steps_ctd": steps("CTD")}
    assert summary({})["ctd_step_seconds_h64"] is None
    line = summary({**found, "bits": {"rows": [{"same_bits": True}, {"same_bits": False}]}})
    assert (line["ctd_step_seconds_h64"], line["ctd_step_seconds_h128"]) == (0.064, 0.128)
    assert (line["time_ratio_h64"], line["memory_ratio_h64"]) == (2, 10)
    assert (line["ctd_mfu_h128"], line["ctd_bandwidth_h128"]) == (0.2, 0.5)
    assert (line["same_bits"], line["tests_passed"]) == (False, None)
    assert table(found["steps_ctd"]).row_count == 5
    rows = gpu_tables.steps(found).rows
    assert len(rows) == 15
    assert rows[0][3:] == ["64.0 ms", "1.00 GB", "20 %", "50 %"]


def test_a_suite_goes_on_where_it_was_at_the_same_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(name: str, extent: Extent) -> dict[str, Any]:  # noqa: ARG001
        if name == "radius" and len(ran) < 2:
            raise InputError("part radius failed")
        ran.append(name)
        return {"of": name}

    commit = ["a" * 40]
    monkeypatch.setattr(gpu_suite, "run_apart", run)
    monkeypatch.setattr(gpu_suite, "read_tree", lambda _: results.Tree(commit[0], True))
    names, extent = ["bits", "radius"], Extent(False, tmp_path)
    with pytest.raises(InputError, match="radius"):
        run_parts(names, extent)
    ran.append("mended")
    assert run_parts(names, extent) == {name: {"of": name} for name in names}
    assert ran == ["bits", "mended", "radius"]
    assert run_parts([], extent).keys() == {"bits", "radius"}
    assert run_parts([], Extent(True, tmp_path)) == {}, "a dry run is none of a card"
    commit[0] = "b" * 40
    assert run_parts([], extent) == {}


def test_a_part_that_fails_or_takes_too_long_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, said in (
        (subprocess.CalledProcessError(1, "python"), "part bits failed"),
        (subprocess.TimeoutExpired("python", 600), "part bits took longer than 10 minutes"),
    ):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(subprocess, "run", fail)
        with pytest.raises(InputError, match=said):
            gpu_suite.run_apart("bits", Extent(False, tmp_path))


def test_without_a_card_nothing_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_suite, "has_card", lambda: False)
    output = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu_suite.py", "--output", str(output)])
    with pytest.raises(InputError, match="torch sees no GPU here"):
        gpu_suite.main()
    assert not output.exists()


@pytest.mark.parametrize("option", [["--publish"], ["--output", "gpu.json"]])
def test_a_dry_run_writes_no_results(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments_of(["--dry-run", *option])
    assert "--dry-run writes no result file" in capsys.readouterr().err


# Slow: it interprets training steps.
@pytest.mark.slow
def test_a_dry_run_walks_through_every_part(tmp_path: Path) -> None:
    published = CHECKOUT / "docs/results/gpu.json"
    before = published.read_bytes()
    command = [sys.executable, "scripts/gpu/gpu_suite.py", "--dry-run", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"walked": list(PARTS)}
    assert published.read_bytes() == before
    found = {name: json.loads((tmp_path / f"{name}.json").read_text())["found"] for name in PARTS}
    assert found["tests"]["passed"]
    assert all(row["same_bits"] for row in found["bits"]["rows"])
    assert found["sampling"]["same"]
    assert found["radius"]["same"]
    assert all(row["seconds"] > 0 for row in found["steps_ctd"]["rows"])
    assert len(found["offload"]["losses"]) == 2
