"""Resumed runs are bit for bit one that was never interrupted.

They are on 3 ranks: the sum of two numbers has no order.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from bigtrk.models.settings import AttentionGNNConfig, InteractionGNNConfig, ModelConfig
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, step_folders, steps, train, write_events
from tests.distributed.trial import same

# Large enough that ranks add up their gradients in parts.
INTERACTION = InteractionGNNConfig(hidden=32, layers=2)
CASES: dict[str, tuple[str, ModelConfig, str]] = {
    "DDP": ("DDP", INTERACTION, "adamw"),
    "FSDP2": ("FSDP2", AttentionGNNConfig(hidden=32, layers=2), "adamw"),
    "Muon": ("coalesced", INTERACTION, "muon"),
}


def configuration(
    events: Path, run: Path, engine: str, model: ModelConfig, optimizer: str
) -> Configuration:
    """Gives an epoch two steps, in each of which all ranks have gradients."""
    made = settings(events, run, 1, ENGINES[engine])
    pt_weight = made.training.pt_weight if model is INTERACTION else 0.0
    training = {"events_per_step": 4, "pt_weight": pt_weight, "average_decay": 0.9}
    sections = {
        "model": model,
        "training": made.training.model_copy(update=training),
        "optimizer": made.optimizer.model_copy(update={"name": optimizer}),
    }
    return made.model_copy(update=sections)


def whole_and_resumed(ranks: Ranks, events: Path, folder: Path, *case: Any) -> None:
    """Trains three epochs in one go, and resumed at the first one's end, and in the second one."""
    whole, within = folder / "whole", folder / "resumed"
    one = configuration(events, within, *case)
    train(ranks, one)
    train(ranks, one, within, "training.minutes=1e-9")
    if ranks.is_first:
        with (within / "metrics.jsonl").open("a") as lines:
            lines.write('{"kind": "st')  # a crash in the middle of a line
    dist.barrier()
    train(ranks, one, within, "training.minutes=null")
    three = configuration(events, whole, *case)
    training = three.training.model_copy(update={"epochs": 3})
    train(ranks, three.model_copy(update={"training": training}))


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, 9)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_resuming_continues_bit_for_bit(tmp_path: Path, events: Path, name: str) -> None:
    run_ranks(3, whole_and_resumed, events, tmp_path, *CASES[name])
    whole = tmp_path / "whole"
    weights, averaged = (load_file(whole / f"{name}.safetensors") for name in ("model", "averaged"))
    assert not any(torch.equal(averaged[name], weights[name]) for name in weights)
    assert len(steps(whole)) == 6
    assert step_folders(whole) == ["latest.json", "step-00000004", "step-00000006"]
    resumed = tmp_path / "resumed"
    assert steps(resumed) == steps(whole)
    for one, other in zip(read_run(resumed).epochs, read_run(whole).epochs, strict=True):
        assert (one.train_loss, one.steps, one.events) == (other.train_loss, 2, 8)
        assert one.validation == other.validation
    for file, expected in (("model", weights), ("averaged", averaged)):
        assert same(load_file(resumed / f"{file}.safetensors"), expected)
