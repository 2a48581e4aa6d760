"""Each engine on 2, 3 and 4 ranks: resumed runs are bit for bit one that was never interrupted.

Two ranks alone prove little: the sum of two numbers has no order.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from bigtrk.models.settings import (
    AttentionGNNConfig,
    EdgeMLPConfig,
    InteractionGNNConfig,
    ModelConfig,
)
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.settings import Configuration
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES, settings, steps, train, write_events

# Large enough that ranks add up their gradients in parts.
MODELS: dict[str, ModelConfig] = {
    "interaction": InteractionGNNConfig(hidden=32, layers=2),
    "attention": AttentionGNNConfig(hidden=32, layers=2),
    "mlp": EdgeMLPConfig(hidden=32),
}
INTERACTION = {name: (engine, "interaction") for name, engine in ENGINES.items()}
MUON = (ENGINES["DDP"], "interaction", "muon")
CASES: dict[int, dict[str, tuple[Any, ...]]] = {
    2: INTERACTION,
    3: {
        **INTERACTION,
        "DDP, attention": (ENGINES["DDP"], "attention"),
        "DDP, MLP": (ENGINES["DDP"], "mlp"),
        "DDP, Muon": MUON,
    },
    4: {**INTERACTION, "FSDP2 hybrid": ({"name": "fsdp2", "shard_ranks": 2}, "interaction")},
}
# Checkpoints of every engine are resumed on two ranks by test_checkpoints.py.
QUICK: dict[int, tuple[str, ...]] = {2: (), 3: ("DDP", "coalesced", "FSDP2", "DDP, Muon"), 4: ()}


def configuration(
    events: Path, run: Path, engine: dict[str, Any], model: str, optimizer: str = "adamw"
) -> Configuration:
    """Give an epoch two steps, in each of which all ranks have gradients."""
    made = settings(events, run, 1, engine)
    pt_weight = made.training.pt_weight if model == "interaction" else 0.0
    training = {"events_per_step": 4, "pt_weight": pt_weight, "average_decay": 0.9}
    sections = {
        "model": MODELS[model],
        "training": made.training.model_copy(update=training),
        "optimizer": made.optimizer.model_copy(update={"name": optimizer}),
    }
    return made.model_copy(update=sections)


def whole_and_resumed(ranks: Ranks, events: Path, folder: Path, *case: Any) -> None:
    """Train three epochs in one go, resumed at the first one's end, and in the second one, too."""
    whole, at_end, within = (folder / name for name in ("whole", "at_end", "within"))
    one = configuration(events, at_end, *case)
    train(ranks, one)
    if ranks.is_first:
        shutil.copytree(at_end, within)
    dist.barrier()
    train(ranks, one, at_end)
    train(ranks, one, within, "training.minutes=1e-9")
    train(ranks, one, within, "training.minutes=null")
    three = configuration(events, whole, *case)
    training = three.training.model_copy(update={"epochs": 3})
    train(ranks, three.model_copy(update={"training": training}))


def work(ranks: Ranks, events: Path, folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        whole_and_resumed(ranks, events, folder / name, *CASES[ranks.world_size][name])


# Starting processes costs more than most of what they do here.
@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Give the folder of all runs of `names`, which are trained when it is first asked for."""
    events = tmp_path_factory.mktemp("events")
    write_events(events, 9)

    @cache
    def folder(world_size: int, names: tuple[str, ...]) -> Path:
        made = tmp_path_factory.mktemp("runs")
        run_ranks(world_size, work, events, made, names)
        return made

    return folder


@pytest.mark.parametrize(
    ("world_size", "name"),
    [
        pytest.param(n, name, marks=() if name in QUICK[n] else pytest.mark.slow)
        for n, cases in CASES.items()
        for name in cases
    ],
)
def test_resumed_runs_have_the_losses_and_weights_of_the_whole_one(
    trained: Callable[..., Path], world_size: int, name: str
) -> None:
    quick = QUICK[world_size]
    slow = tuple(case for case in CASES[world_size] if case not in quick)
    folder = trained(world_size, quick if name in quick else slow) / name
    weights = load_file(folder / "whole" / "model.safetensors")
    averaged = load_file(folder / "whole" / "averaged.safetensors")
    assert not any(torch.equal(averaged[name], weights[name]) for name in weights)
    assert len(steps(folder / "whole")) == 6
    for resumed in (folder / "at_end", folder / "within"):
        assert steps(resumed) == steps(folder / "whole"), resumed.name
        for file, expected in (("model", weights), ("averaged", averaged)):
            found = load_file(resumed / f"{file}.safetensors")
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found), resumed.name
