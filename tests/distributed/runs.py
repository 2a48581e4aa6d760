"""Whole runs, for tests."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.evaluation import EvaluationRecord
from bigtrk.records.metrics import StepRecord
from bigtrk.records.run_folder import read_metrics, read_run
from bigtrk.training import trainer
from bigtrk.training.checkpoint.folder import resumed_configuration
from bigtrk.training.data.event_source import Events, split_validation
from bigtrk.training.evaluation.evaluate import evaluate_run
from bigtrk.training.run import Job, completed, open_run
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import random_graph, write_cut, write_graphs

# Every engine there is, by name.
ENGINES: dict[str, dict[str, Any]] = {
    "DDP": {"name": "ddp"},
    "coalesced": {"name": "ddp", "coalesced": True},
    "FSDP2": {"name": "fsdp2"},
    **{
        name: {"name": "deepspeed", "ds_config": name}
        for name in ("zero0", "zero1", "zero2", "zero3", "zero3_offload")
    },
}


def write_events(
    folder: Path, n: int = 5, make: Callable[[int, int, int], EventGraph] = random_graph
) -> None:
    """Write `n` whole events, and three of them cut in two, in folders `graphs` and `sectors`.

    make: from a seed, a number of nodes and one of edges to a graph.
    """
    graphs = [make(seed, 40 + 5 * seed, 240) for seed in range(n)]
    write_graphs(folder / "graphs", graphs)
    write_cut(folder, graphs[:3], 2)


def write_in_sectors(folder: Path, graphs: Sequence[EventGraph], parts: int) -> None:
    """Writes events whole, in the folder `graphs`, and all of them cut in `parts` in `sectors`."""
    write_graphs(folder / "graphs", graphs)
    write_cut(folder, graphs, parts)


def settings(graphs: Path, run: Path, epochs: int, engine: dict[str, Any]) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [graphs / "graphs", graphs / "sectors"], "validation": 1},
            "model": {"hidden": 8, "layers": 2},
            "training": {
                "epochs": epochs,
                "events_per_step": 2,
                "routing": "stored",
                "pt_weight": 0.3,
            },
            "optimizer": {"lr": 0.01, "warmup_steps": 3},
            "engine": engine,
            "run": {"folder": run},
        }
    )


def fit(
    configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None = None
) -> Path:
    """Trains on these events, whatever the folders hold; returns the run folder."""
    with open_run(completed(Job(configuration, ranks, events, resume))) as run:
        trainer.train(run)
    return run.folder


def train(
    ranks: Ranks, configuration: Configuration, resume: Path | None = None, *overrides: str
) -> str:
    """Fit; a run to resume goes on to the third epoch, with `overrides`."""
    if resume:
        configuration = resumed_configuration(resume, ["training.epochs=3", *overrides])
    data = configuration.data
    torch.manual_seed(ranks.rank + time.time_ns() % 1000)  # whatever was drawn before
    return str(
        fit(configuration, ranks, Events(*split_validation(data.train, 1, data.events)), resume)
    )


def steps(run: Path) -> list[Any]:
    lines = [record for _, record in read_metrics(run)]
    return [(line.step, line.loss, line.lr) for line in lines if isinstance(line, StepRecord)]


def step_folders(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def fit_all(ranks: Ranks, configuration: Configuration, resume: Path | None = None) -> None:
    """Trains on all events but the last, on which it validates."""
    fit(configuration, ranks, Events(*split_validation(configuration.data.train, 1)), resume)


def losses(run: Path) -> list[float]:
    """Returns the losses of a run's steps, except those that had none."""
    return [step.loss for step in read_run(run).steps if step.loss is not None]


def evaluated(ranks: Ranks, run: Path, data: Path) -> EvaluationRecord:
    return evaluate_run(run, [data], None, ranks)
