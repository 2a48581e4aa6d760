"""A small pipeline: its settings, its events, its training; and how commands are typed."""

import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from bigtrk.events.simulation.production import simulate_folder
from bigtrk.pipeline import training
from bigtrk.pipeline.training import train_pipeline
from bigtrk.program import PROGRAM
from bigtrk.tracks import merge_tree_training
from tests.programs import run_in_one

Typed = Callable[..., Any]
FEW_STEPS = patch.object(merge_tree_training, "STEPS", 150)  # that networks of stage 5 learn in
EPOCHS = {"embedding": 20, "filter": 6, "classifier": 10}
SMALL: dict[str, Any] = {
    "embedding": {
        "model": {"name": "embedding", "hidden": 32, "mlp_layers": 2},
        "optimizer": {"lr": 0.01},
    },
    "filter": {"model": {"name": "mlp", "hidden": 16, "mlp_layers": 2}, "optimizer": {"lr": 0.01}},
    "classifier": {"model": {"hidden": 16, "layers": 3}, "optimizer": {"lr": 0.005}},
}


def settings() -> dict[str, Any]:
    """Makes the settings of a pipeline for events of 200 particles."""
    stages = {
        stage: {
            **content,
            "sampling": {"method": "wedges", "wedges": 2},
            "training": {"epochs": EPOCHS[stage], "class_balance": "equal"},
        }
        for stage, content in SMALL.items()
    }
    stages["embedding"]["data"] = {"node_features": ["r", "cos_phi", "sin_phi", "z", "eta"]}
    return {"validation": 2, "fakes": 0.1, **stages}


def make_pipeline(folder: Path) -> None:
    """Trains a pipeline on 6 events; beside it lie 2 others, with and without truth."""
    simulate_folder(folder / "events", range(6), 200, seed=1, detectors=None)
    simulate_folder(folder / "others", range(10, 12), 200, seed=1, detectors=None)
    (folder / "hits").mkdir()
    for file in (folder / "others").glob("*-hits.*"):
        shutil.copy(file, folder / "hits")
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings()))
    with FEW_STEPS, patch.object(training, "train_logged", _train_in_a_fork):
        train_pipeline(folder / "events", folder / "out", folder / "pipeline.yaml", None)


def _train_in_a_fork(command: Sequence[str], log: Path, *_: object) -> None:
    """Trains in a fork of a process that has imported torch; `make demo` starts programs."""
    log.write_text(run_in_one([shlex.join([PROGRAM, *command[2:]])], Path.cwd()))
