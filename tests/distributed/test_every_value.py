"""Every value of every setting trains a step."""

import math
import os
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bigtrk.config import load_settings
from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.features import CELL_FEATURES
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run_folder import read_run
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run import open_data
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration, code_named
from bigtrk.user_code import allow_code
from tests.distributed.graphs import random_graph, write_cut, write_graphs
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import fit
from tests.every_value import Value, every_value

# Two events make a step.
SMALL: dict[str, Any] = {
    "data.train": ["graphs"],
    "data.validation": 0,
    "training.epochs": 2,
    "training.events_per_step": 2,
}
# Of one rank the others show nothing, or are nothing.
OF_TWO_RANKS = ("engine.", "data.sectors", "training.routing", "sampling.method")
VALUES = {
    world_size: [v for v in every_value() if v.key.startswith(OF_TWO_RANKS) == (world_size == 2)]
    for world_size in (1, 2)
}


def graph(seed: int) -> EventGraph:
    """Makes a graph with every feature, and particles of which all is known."""
    made = random_graph(seed, 30, 120)
    assert made.particles is not None
    clusters = torch.rand(made.n_nodes, len(CELL_FEATURES))
    known = torch.linspace(-4, 4, len(made.particles.eta))
    return replace(
        made,
        node_feature_names=(*made.node_feature_names, *CELL_FEATURES),
        node_features=torch.cat([made.node_features, clusters], dim=1),
        particles=replace(made.particles, eta=known),
    )


def write_events(folder: Path) -> None:
    """Two events as `graphs`, in two `sectors` each, and as `true edges`, a third `held back`; and
    a run to `start` from.
    """
    *trained, held = [graph(seed) for seed in range(3)]
    true = [replace(one, y=torch.ones(one.n_edges, dtype=torch.bool)) for one in trained]
    folders = (("graphs", trained, None), ("held back", [held], None), ("true edges", true, 1.0))
    for name, some, purity in folders:
        write_graphs(folder / name, some, purity=purity or 0.5)
    write_cut(folder, trained, 2)
    start = load_settings(Configuration, None, Value("training.seed", 1, {}).overrides(**SMALL))
    save_model(folder / "start", build_model(start).state_dict(), describe(start, []))


def stand_in(name: str, **content: Any) -> None:
    """A module in place of one that need not be installed."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(content)
    sys.modules[name] = module


class Silent:
    """A logger's package that takes everything and says nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.define_metric = self.log = self.add_scalar = self.flush = type(self)
        self.experiment_id = "0"


def together(values: list[Value]) -> list[tuple[Value, list[Value]]]:
    """Puts values of several settings into one configuration, where that may have them all."""
    found: list[tuple[Value, list[Value]]] = []
    for value in values:
        own = {**value.needed, value.key: value.value}
        for place, (merged, several) in enumerate(found):
            held = {**merged.needed, merged.key: merged.value}
            # Of the same events; a run that begins with another's weights has its model.
            same = all(own.get(key) == held.get(key) for key in ("data.train", "model.init_from"))
            if same and all(held.get(key, it) == it for key, it in own.items()):
                both = replace(merged, needed={**held, **own})
                with suppress(InputError):
                    load_settings(Configuration, None, both.overrides(**SMALL))
                    found[place] = both, [*several, value]
                    break
        else:
            found.append((value, [value]))
    return found


def train_all(ranks: Ranks, folder: Path, values: list[Value]) -> list[Path]:
    """Trains a run of each value."""
    os.chdir(folder)
    stand_in("wandb", init=Silent)
    stand_in("tensorboard")
    stand_in("torch.utils.tensorboard", SummaryWriter=Silent)
    used = ("set_experiment", "end_run", "start_run", "log_params", "log_metrics")
    stand_in("mlflow", search_runs=lambda *_, **__: [], **dict.fromkeys(used, Silent))
    runs: list[Path] = []
    for value in values:
        configuration = load_settings(Configuration, None, value.overrides(**SMALL))
        allow_code(code_named(configuration))
        runs.append(train(ranks, configuration, value))
    return runs


def train(ranks: Ranks, configuration: Configuration, value: Value) -> Path:
    try:
        configuration, events = open_data(configuration)
        return fit(configuration, ranks, events, None).absolute()
    except Exception as error:
        error.add_note(f"while training {value}")
        raise


def setting(content: Any, key: str) -> Any:
    for name in key.split("."):
        content = content[name]
    return content


@pytest.mark.parametrize("world_size", VALUES)
def test_every_value_trains_a_step(world_size: int, tmp_path: Path) -> None:
    write_events(tmp_path)
    found = together(VALUES[world_size])
    merged = [value for value, _ in found]
    runs = run_ranks(world_size, train_all, tmp_path, merged, fresh=True)[0]
    for (value, several), folder in zip(found, runs, strict=True):
        run = read_run(folder)
        for one in several:
            as_written = list(one.value) if isinstance(one.value, tuple) else one.value
            assert setting(run.record.config, one.key) == as_written, one
        assert run.steps, value
        assert all(step.loss is not None and math.isfinite(step.loss) for step in run.steps), value
        configuration = Configuration.model_validate(run.record.config)
        allow_code(code_named(configuration))
        start, end = (
            build_model(configuration).state_dict(),
            load_file(folder / "model.safetensors"),
        )
        assert start.keys() == end.keys(), value
        assert not all(torch.equal(start[name], end[name]) for name in start), value
