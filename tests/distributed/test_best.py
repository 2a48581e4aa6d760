"""The best checkpoint of whole runs, and their end without a better one, resumed and damaged.

Losses are scripted, so that it is known which epoch is the best.
"""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.errors import InputError
from bigtrk.parallel.engines.engine import AVERAGE
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.records.run_folder import read_run, read_run_record
from bigtrk.training import trainer
from bigtrk.training.checkpoint.checkpointer import stored_weights
from bigtrk.training.checkpoint.manifest import read_checkpoint, shard_name
from bigtrk.training.checkpoint.resume import resumed_configuration
from bigtrk.training.settings import Configuration
from bigtrk.training.trainer import Trainer, Validated
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit_all, settings, step_folders, write_events
from tests.programs import run_here

# Of each epoch. Epoch 1 is the best until 5 is; with a patience of 3 epochs the run ends after 4.
LOSSES = (0.5, 0.4, 0.6, 0.7, 0.45, 0.3, 0.35, 0.31, 0.32, 0.33)
WORSE = (*LOSSES[:5], 0.9, 0.9)
STEPS = 2  # of an epoch


def scripted(losses: tuple[float, ...]) -> type[Trainer]:
    class Scripted(Trainer):
        def _validated(self) -> Validated:
            return {"validation": MeanEdgeMetrics(loss=losses[self.epoch])}

    return Scripted


def configuration(events: Path, run: Path, epochs: int, patience: int | None) -> Configuration:
    made = settings(events, run, epochs, {"name": "ddp"})
    content = made.model_dump(mode="json")
    content["training"] |= {
        "best": {"metric": "loss", "patience": patience},
        "average_decay": 0.5,
    }
    return Configuration.model_validate(content)


def go_on(ranks: Ranks, run: Path, *overrides: str, losses: tuple[float, ...] = LOSSES) -> None:
    with patch.object(trainer, "Trainer", scripted(losses)):
        fit_all(ranks, resumed_configuration(run, overrides), run)


def begin(ranks: Ranks, events: Path, run: Path, epochs: int, patience: int | None) -> None:
    with patch.object(trainer, "Trainer", scripted(LOSSES)):
        fit_all(ranks, configuration(events, run, epochs, patience))


def copied(ranks: Ranks, run: Path, to: Path) -> Path:
    if ranks.is_first:
        shutil.copytree(run, to)
    torch.distributed.barrier()
    return to


def work(ranks: Ranks, folder: Path) -> str:
    """Returns what is said of a run that has ended for want of a better epoch."""
    begin(ranks, folder, folder / "patient", 9, 3)
    for epochs in (2, 4):  # the state of an interrupted search is that of one that was not
        if epochs == 2:
            begin(ranks, folder, folder / "halted", epochs, 3)
        else:
            go_on(ranks, folder / "halted", "training.epochs=9")
    with pytest.raises(InputError) as caught:
        go_on(ranks, folder / "patient")
    go_on(ranks, copied(ranks, folder / "patient", folder / "on"), "training.best.patience=4")
    begin(ranks, folder, folder / "six", 6, None)
    return str(caught.value)


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


def test_a_file_of_weights_is_evaluated(
    done: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Holds where these are the weights that a run ended with."""

    def evaluated(model: Path) -> dict[str, Any]:
        command = ["bigtrk", "evaluate", str(model), str(done[1] / "graphs"), "--json"]
        status, out, err = run_here(command, monkeypatch, capsys)
        assert status == 0, err
        return dict(json.loads(out))

    run, alone = done[1] / "patient", tmp_path / "alone"
    alone.mkdir()
    shutil.copy(run / "config.json", alone)
    shutil.copy(run / "best.safetensors", alone / "model.safetensors")
    best = evaluated(run / "best.safetensors")
    assert best["weights"] == "best.safetensors"
    assert best["edge_metrics"] == evaluated(alone)["edge_metrics"]
    last = evaluated(run)
    assert last["weights"] is None
    assert best["edge_metrics"]["loss"] != last["edge_metrics"]["loss"]
    assert len([*(run / "evaluations").iterdir()]) == 2


def test_a_run_ends_without_a_better_epoch(done: tuple[str, Path]) -> None:
    run = read_run(done[1] / "patient")
    assert len(run.epochs) == 5
    assert run.record.ended == "patience"
    assert read_run_record(done[1] / "six").ended == "epochs"
    assert "ended since its last 3 epochs were no better" in done[0]
    assert "training.best.patience=4 or more, or null" in done[0]


def test_an_interrupted_search_goes_on(done: tuple[str, Path]) -> None:
    whole, halted = done[1] / "patient", done[1] / "halted"
    assert len(read_run(halted).epochs) == 5
    assert read_run_record(halted).ended == "patience"
    assert best(halted) == best(whole)
    assert step_folders(halted) == step_folders(whole)
    weights, others = (load_file(run / "model.safetensors") for run in (whole, halted))
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_with_more_patience_it_finds_the_better_epoch(done: tuple[str, Path]) -> None:
    run = done[1] / "on"
    assert (best(run)["epoch"], best(run)["value"]) == (5, 0.3)
    assert len(read_run(run).epochs) == 9
    assert read_run_record(run).ended == "epochs"
    assert step_folders(run) == names(5, 7, 8)


def broken(ranks: Ranks, folder: Path) -> None:
    """Damages checkpoints of runs of six epochs, the last of them the best, and goes on."""
    newest = folder / "six" / "checkpoints" / "step-00000012" / shard_name(0)
    newest.write_bytes(b"")
    lost = copied(ranks, folder / "patient", folder / "lost")
    shutil.rmtree(lost / "checkpoints" / "step-00000004")
    go_on(ranks, folder / "six", "training.epochs=6", losses=WORSE)
    go_on(ranks, lost, "training.best.patience=4", "training.epochs=6", losses=WORSE)


def test_damaged_checkpoints_are_never_the_best(
    done: tuple[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = done[1]
    assert step_folders(folder / "six") == names(1, 4, 5), "1 is the best for whoever falls back"
    assert best(folder / "six")["epoch"] == 5
    run_ranks(1, broken, folder)
    said = capfd.readouterr().out
    assert "step-00000012 is damaged" in said
    assert best(folder / "six")["checkpoint"] == "step-00000004"
    assert step_folders(folder / "six") == ["damaged-step-00000012", *names(1, 4, 5)]
    assert "step-00000004: the best checkpoint so far is damaged" in said
    assert best(folder / "lost")["epoch"] == 5
