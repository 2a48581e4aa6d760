"""A run of a network of PyG's layers: routed, trained, resumed, read back."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk import user_code
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.data.features import degree_histogram
from bigtrk.training.model_files import load_model
from bigtrk.training.settings import Configuration
from bigtrk.user_code import allow_code
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, steps, train, write_events

NETS = "tests.models.pyg_nets"


def configuration(folder: Path, run: str, engine: str, epochs: int) -> Configuration:
    content: dict[str, Any] = settings(folder, folder / run, epochs, ENGINES[engine]).model_dump()
    content["model"] = {"name": "pyg", "options": {"module": f"{NETS}:Degrees"}}
    content["training"] |= {"pt_weight": 0.0, "routing": "automatic", "memory_gib": 1.0}
    return Configuration.model_validate(content)


def train_twice(ranks: Ranks, folder: Path, engine: str) -> None:
    """Trains two epochs and resumes for a third, and trains three in one go."""
    allow_code([NETS])
    train(ranks, configuration(folder, "resumed", engine, epochs=2))
    train(ranks, configuration(folder, "resumed", engine, epochs=2), folder / "resumed")
    train(ranks, configuration(folder, "in one go", engine, epochs=3))


def test_a_run_resumes_and_its_model_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_events(tmp_path, 4)
    run_ranks(2, train_twice, tmp_path, "zero3")
    resumed, whole = tmp_path / "resumed", tmp_path / "in one go"
    assert steps(resumed) == steps(whole)
    monkeypatch.setattr(user_code, "_allowed", {NETS})
    stored, other = load_model(resumed), load_model(whole)
    events, _ = split_validation([tmp_path / "graphs"], 1)
    assert stored.configuration.model.model_dump()["options"] == {
        "module": f"{NETS}:Degrees",
        "degree_histogram": degree_histogram(events),
    }
    weights, expected = stored.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
