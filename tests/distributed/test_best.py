"""The best checkpoint of whole runs, and their end without a better one, and resumed.

Losses are scripted, so that it is known which epoch is the best.
"""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.parallel.engines.engine import AVERAGE
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.records.run_folder import read_run, read_run_record
from bigtrk.training import trainer
from bigtrk.training.checkpoint.checkpointer import stored_weights
from bigtrk.training.checkpoint.folder import resumed_configuration
from bigtrk.training.checkpoint.manifest import read_checkpoint
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import Trainer
from tests.distributed.ranks import message, run_ranks
from tests.distributed.runs import fit_all, settings, step_folders, write_events

# Of each epoch. Epoch 1 is the best; with a patience of 3 epochs the run ends after epoch 4.
LOSSES = (0.5, 0.4, 0.6, 0.7, 0.45)
STEPS = 2  # of an epoch


class Scripted(Trainer):
    def _validated(self) -> dict[str, Any]:
        return {"validation": MeanEdgeMetrics(loss=LOSSES[self.epoch])}


def configuration(events: Path, run: Path, epochs: int) -> Configuration:
    content = settings(events, run, epochs, {"name": "ddp"}).model_dump(mode="json")
    best = {"metric": "loss", "patience": 3}
    content["training"] |= {"best": best, "average_decay": 0.5}
    return Configuration.model_validate(content)


def work(ranks: Ranks, folder: Path) -> str | None:
    """Returns the messages on a run that has ended for want of a better epoch."""
    patient, halted = folder / "patient", folder / "halted"
    with patch.object(trainer, "Trainer", Scripted):
        fit_all(ranks, configuration(folder, patient, 9))
        fit_all(ranks, configuration(folder, halted, 2))
        fit_all(ranks, resumed_configuration(halted, ["training.epochs=9"]), halted)
        return message(lambda: fit_all(ranks, resumed_configuration(patient, []), patient))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("best")
    write_events(folder)
    return run_ranks(2, work, folder)[0], folder


def best(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "best.json").read_text())
    return content


def names(*epochs: int) -> list[str]:
    """Names the checkpoints at the ends of epochs, and the file that names the newest."""
    return ["latest.json", *(f"step-{STEPS * (epoch + 1):08d}" for epoch in epochs)]


def test_the_best_checkpoint_outlives_newer_ones(done: tuple[str, Path]) -> None:
    run = done[1] / "patient"
    assert step_folders(run) == names(1, 3, 4)
    assert best(run) == {
        "format": 1,
        "metric": "loss",
        "value": 0.4,
        "epoch": 1,
        "step": 4,
        "checkpoint": "step-00000004",
    }


def test_the_weights_that_were_the_best_are_written_at_the_end(done: tuple[str, Path]) -> None:
    run = done[1] / "patient"
    folder = run / "checkpoints" / "step-00000004"
    stored = stored_weights(folder, read_checkpoint(folder), AVERAGE)
    best, last = (load_file(run / f"{name}.safetensors") for name in ("best", "averaged"))
    assert best.keys() == last.keys() == stored.keys()
    for name, weight in best.items():
        assert torch.equal(weight, stored[name])
        assert not torch.equal(weight, last[name])


def test_a_run_ends_without_a_better_epoch(done: tuple[str, Path]) -> None:
    run = read_run(done[1] / "patient")
    assert len(run.epochs) == 5
    assert run.record.ended == "patience"
    assert "ended after 3 epochs without a better one" in done[0]
    assert "training.best.patience=4 or more, or null" in done[0]


def test_an_interrupted_search_goes_on(done: tuple[str, Path]) -> None:
    whole, halted = done[1] / "patient", done[1] / "halted"
    assert len(read_run(halted).epochs) == 5
    assert read_run_record(halted).ended == "patience"
    assert best(halted) == best(whole)
    assert step_folders(halted) == step_folders(whole)
    weights, others = (load_file(run / "model.safetensors") for run in (whole, halted))
    assert all(torch.equal(weights[name], others[name]) for name in weights)
