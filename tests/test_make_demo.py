"""`make demo`, as a newcomer would type it: the main job, then hits without truth to tracks. `make
release` runs it once more, in a new environment without a compiler.
"""

import json
import re
from pathlib import Path

import pytest

from bigtrk import __version__
from bigtrk.tracks.matching import Criteria
from bigtrk.tracks.score_files import score_files
from tests.present import present
from tests.programs import CHECKOUT, run_shell

WHOLE = [pytest.param(f"SEED={seed}", marks=pytest.mark.slow) for seed in range(3)]


@pytest.mark.parametrize("variables", ["PARTICLES=600", *WHOLE])
def test_make_demo(tmp_path: Path, variables: str) -> None:
    demo = tmp_path / "my demo"
    printed = run_shell(f"make demo DEMO='{demo}' {variables}", CHECKOUT)
    assert "Where the time goes" in printed
    assert "matching" in printed
    (written,) = (demo / "run" / "evaluations").glob("graphs-*.json")
    evaluation = json.loads(written.read_text())
    assert evaluation["events"] == 2
    assert evaluation["events_trained_on"] == 0
    assert 0.9 < evaluation["edge_metrics"]["auc"] <= 1
    (strict,) = (
        one
        for one in evaluation["tracks"]["matching"]
        if (one["style"], one["mode"]) == ("ATLAS", "strict")
    )
    assert strict["efficiency"] > 0.8
    assert strict["fake_rate"] < 0.1
    assert 'class="plot"' in (demo / "report.html").read_text()
    run = json.loads((demo / "run" / "run.json").read_text())
    assert run["launcher"] == "deepspeed"
    steps = map(json.loads, (demo / "run" / "metrics.jsonl").read_text().splitlines())
    assert {parts for step in steps for parts in step.get("routes", {}).values()} == {2}
    tracks_are_found(demo)
    assert len(re.findall(r"^\$ ", printed, re.MULTILINE)) == 12
    last = printed.splitlines()[-3:]
    for name in ("report.html", "event.html", "run/MODEL.md"):
        assert (demo / name).is_file()
        assert any(f"{demo}/{name}" in line for line in last)
    assert 'class="plot"' in (demo / "event.html").read_text()
    assert "track efficiency" in (demo / "run" / "MODEL.md").read_text(), "it was evaluated"
    assert "TrackML score" in printed.split("bigtrk score")[-1]
    assert len(re.findall(r"^demo done in \d+ s", printed, re.MULTILINE)) == 1


def tracks_are_found(demo: Path) -> None:
    """Checks the tracks of events that nothing was trained on, and that have no truth."""
    assert (demo / "pipeline" / "pipeline.json").is_file()
    names = {path.name.split(".")[0].split("-")[-1] for path in (demo / "hits").glob("event*")}
    assert names == {"hits", "cells"}
    found = score_files(demo / "tracks", demo / "truth", Criteria())
    assert [one.event for one in found.events] == ["event000000008", "event000000009"]
    [strict] = [one for one in found.matching if (one.style, one.mode) == ("ATLAS", "strict")]
    assert present(strict.efficiency) > 0.8
    assert present(strict.fake_rate) < 0.1


@pytest.mark.slow  # it installs torch, too
def test_make_release(tmp_path: Path) -> None:
    printed = run_shell(f"make release DIST={tmp_path}", CHECKOUT, timeout=1800)
    assert "works without compiler and without checkout" in printed
    kinds = ("-py3-none-any.whl", ".tar.gz")
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {f"bigtrk-{__version__}{kind}" for kind in kinds}
