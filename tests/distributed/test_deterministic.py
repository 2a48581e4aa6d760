"""A training holds torch's deterministic mode, and gives the same bits in every run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit_all, losses, write_events
from tests.distributed.trial import same

MODELS: dict[str, dict[str, Any]] = {
    "interaction": {"name": "interaction", "hidden": 8, "layers": 2, "precision": "bf16"},
    "attention": {"name": "attention", "hidden": 8, "layers": 2},
    "embedding": {"name": "embedding", "hidden": 8, "dimensions": 3},
}


def strictly(ranks: Ranks, runs: list[Configuration]) -> None:
    """Trains with several threads; an operation without an order raises."""
    torch.set_num_threads(3)
    torch.use_deterministic_algorithms(True)
    for configuration in runs:
        fit_all(ranks, configuration)


def settings(folder: Path, run: Path, model: str) -> Configuration:
    training = {"epochs": 2, "events_per_step": 2, "routing": "stored"}
    sections: dict[str, Any] = {"model": MODELS[model], "training": training}
    if model == "embedding":
        sections |= {"pairs": {"hard_hits": 20, "random_pairs": 50}, "training": {"epochs": 2}}
    if model == "interaction":
        training["pt_weight"] = 0.3
    graphs = ["graphs"] if model == "embedding" else ["graphs", "sectors"]
    data = {"train": [folder / name for name in graphs], "validation": 1}
    others = {"data": data, "optimizer": {"lr": 0.01}, "run": {"folder": run}}
    return Configuration.model_validate(sections | others)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of each model, by different processes."""
    folder = tmp_path_factory.mktemp("runs")
    write_events(folder, 3)
    for name in ("one", "other"):
        made = [settings(folder, folder / f"{model} {name}", model) for model in MODELS]
        run_ranks(2, strictly, made, fresh=True)
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_two_runs_have_the_same_bits(runs: Path, model: str) -> None:
    one, other = (runs / f"{model} {name}" for name in ("one", "other"))
    assert losses(one)
    assert losses(one) == losses(other)
    assert same(*(load_file(run / "model.safetensors") for run in (one, other)))
