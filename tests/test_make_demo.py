"""`make demo`, as a newcomer would type it."""

import json
from pathlib import Path

from tests.programs import CHECKOUT, run_shell


def test_make_demo(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    printed = run_shell(f"make demo DEMO={demo}", CHECKOUT)
    assert "Where the time goes" in printed
    assert "matching" in printed
    (written,) = (demo / "run" / "evaluations").glob("graphs-*.json")
    evaluation = json.loads(written.read_text())
    assert evaluation["events"] == 2
    assert evaluation["events_trained_on"] == 0
    assert 0.5 < evaluation["edge_metrics"]["auc"] <= 1
    assert "<svg" in (demo / "report.html").read_text()
    run = json.loads((demo / "run" / "run.json").read_text())
    assert run["launcher"] == "deepspeed"
    steps = map(json.loads, (demo / "run" / "metrics.jsonl").read_text().splitlines())
    assert {parts for step in steps for parts in step.get("routes", {}).values()} == {2}
