"""The scripts of the pipeline's tables from simulation to the tables, in small."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigtrk.events.simulation.production import simulate_folder
from scripts.docs.tables import stage_tables
from scripts.physics import physics_pipeline
from tests.pipeline.small_pipeline import settings

SIZES = {"PARTICLES": 200, "EVENTS": 6, "TEST_EVENTS": 2}


@pytest.mark.slow  # four trainings, and commands in processes of their own: two minutes
def test_the_tables_are_made_of_a_small_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in SIZES.items():
        monkeypatch.setattr(physics_pipeline, name, size)
    monkeypatch.setattr(physics_pipeline, "DEFAULT", tmp_path / "pipeline.yaml")
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(settings()))
    real, out = tmp_path / "real", tmp_path / "out"
    simulate_folder(real, range(1000, 1001), 200, seed=7, detectors=None)

    def published(script: str, *arguments: str | Path) -> Any:
        file = tmp_path / f"{script}.json"
        words = [script, *map(str, arguments), "--event1000", str(real), "--output", str(file)]
        monkeypatch.setattr(sys, "argv", words)
        importlib.import_module(f"scripts.physics.{script}").main()
        return json.loads(file.read_text())

    found = published("physics_pipeline", out, "--quick")
    assert {"simulated", "event1000", "edge_efficiency", "edges", "seconds_per_event"} <= set(
        found["summary"]
    )
    assert set(found["summary"]["pixel"]) == {"efficiency", "fake"}
    measured = [row[-1] for row in stage_tables.targets(found).rows]
    # So small a pipeline may have a merge tree with fewer fakes than components have at any cut.
    assert [cell for cell in measured if "not measured" in cell] in ([], ["not measured"])
    pipeline = out / "pipeline0"
    builders = published("builders_table", pipeline, out / "test_events")
    assert builders["summary"]["builder_gain"] == found["summary"]["builder_gain"]
    assert stage_tables.builders(builders).rows
    graphs = published(
        "graph_builders_table",
        *(pipeline, out / "events", out / "test_events", out / "graphs"),
        *("--settings", out / "pipeline0.yaml", "--efficiency", "0.9"),
    )
    found_by_way = graphs["summary"]["simulated"]
    assert set(found_by_way) == set(stage_tables.GRAPHS)
    # Windows and maps of so few events keep few edges of others.
    for name in ("embedding", "embedding_filter"):
        assert found_by_way[name]["target_efficiency"] > 0.8
    assert len(stage_tables.graph_builders(graphs).rows) == 2 * len(stage_tables.GRAPHS)
