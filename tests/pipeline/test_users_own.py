"""A stage of a pipeline may be a model of the user's own."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigtrk import user_code
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.pipeline import training
from bigtrk.pipeline.stages import CLASSIFIER
from bigtrk.pipeline.training import DEFAULT, read_settings, train_pipeline, train_stage
from tests.models import user_models
from tests.pipeline.small_pipeline import settings
from tests.programs import Run, refusal_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Starts in a folder with a pipeline's settings, whose classifier is of a module there."""
    (tmp_path / "own_stage.py").write_text(Path(user_models.__file__).read_text())
    content: dict[str, Any] = settings()
    content["classifier"]["model"] = {"name": "own_stage:Layered", "options": {"hidden": 16}}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget(monkeypatch)
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process one that has been told of no code."""
    monkeypatch.setattr(user_code, "_allowed", set())
    sys.modules.pop("own_stage", None)


def test_a_stage_that_goes_on_may_import_what_its_pipeline_names(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_folder(home / "events", range(2), 40, 0, None)
    build_folder(home / "events", home / "graphs")
    commands: list[list[str]] = []
    monkeypatch.setattr("bigtrk.studies.launch.resumable", lambda _: True)
    monkeypatch.setattr(training, "train_logged", lambda command, *_: commands.append(command[-4:]))
    stages = read_settings(home / "pipeline.yaml")
    train_stage(CLASSIFIER, stages, home / "graphs", home / "out", ["python"])
    assert commands == [["--resume", str(home / "out" / CLASSIFIER), "--code", "own_stage"]]
    forget(monkeypatch)
    read_settings(DEFAULT)
    train_stage(CLASSIFIER, stages, home / "graphs", home / "out", ["python"])
    assert "--code" not in commands[1]


# Slow: it trains three stages.
@pytest.mark.slow
def test_a_pipeline_with_a_classifier_of_ones_own_makes_tracks(
    home: Path, monkeypatch: pytest.MonkeyPatch, run_program: Run
) -> None:
    simulate_folder(home / "events", range(6), 200, 1, None)
    train_pipeline(home / "events", home / "out", home / "pipeline.yaml", None)
    forget(monkeypatch)
    make = ["bigtrk", "reconstruct", "out", "events", "tracks"]
    assert "if you trust this module, add --code own_stage" in refusal_of(run_program(make))
    assert run_program([*make, "--code", "own_stage"])[0] == 0
