"""Measures how long training waits for a checkpoint written by a thread, or before the next step.

    python scripts/bench/bench_checkpoint.py [--output FILE] [--publish]

On 2 ranks of this host, each engine a launch, on a graph so small that parameters alone count.
Three ways take turns. `none`: 16 steps. `thread`, as every training does: the state is copied to
host memory, then 16 steps are trained while a thread of each rank writes it. `synchronous`: these
steps begin when all ranks have written it, fsynced and read it back. Seconds of the slowest rank,
medians over 15 rounds: `blocked`, until the first step begins; `round`, until steps and writing are
done; and `ratio`, of those blocked in the same round, thread / synchronous. The last line is one
JSON object with the ratio of each engine.
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import Stopwatch
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.guards import LossHistory
from bigtrk.training.model_files import build_model
from bigtrk.training.schedule import Plateau
from bigtrk.training.settings import Configuration
from scripts.bench.measure_sharding import ENGINES as SETTINGS
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options
from tests.distributed.held_memory import backward

ENGINES, WAYS = ("ddp", "fsdp2", "zero3"), ("none", "thread", "synchronous")
RANKS, STEPS, ROUNDS = 2, 16, 15
MODEL = {"hidden": 128, "layers": 8}


def measure(ranks: Ranks, engine_name: str, folder: Path) -> dict[str, Any]:
    """Measures the size of a checkpoint, and seconds. Collective."""
    configuration = Configuration.model_validate({"model": MODEL, "engine": SETTINGS[engine_name]})
    model, stopwatch = build_model(configuration).to(ranks.device), Stopwatch(ranks.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    engine, name = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    rounds: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    description = RunDescription("", name, {})
    with Checkpointer(folder, engine, description, lambda: None) as checkpoints:
        for number in range(len(WAYS) * (ROUNDS + 1)):
            way = WAYS[number % len(WAYS)]
            dist.barrier()
            with stopwatch.time("all"):
                with stopwatch.time("blocked"):
                    if way != "none":
                        checkpoints.save(progress(number))
                    if way == "synchronous":
                        checkpoints.wait()
                for _ in range(STEPS):
                    backward(engine, ranks.device)
                    engine.step(1e-4)
                checkpoints.wait()
            taken = stopwatch.take()
            rounds[way].append(all_max([taken["blocked"], taken["all"]], ranks.device).tolist())
    newest = max((folder / "checkpoints").glob("step-*"))
    size = sum(path.stat().st_size for path in newest.iterdir())
    return {"engine": name, "parameters": parameters, "bytes": size, **figures(rounds)}


def progress(step: int) -> Progress:
    """Makes the progress of a step: each checkpoint has a number of its own."""
    return Progress(0, step, step, Plateau(), LossHistory(), EpochTotals())


def figures(rounds: dict[str, list[list[float]]]) -> dict[str, Any]:
    """Returns medians, without the first round, which warms up."""
    columns = {way: list(zip(*found[1:], strict=True)) for way, found in rounds.items()}
    pairs = zip(columns["thread"][0], columns["synchronous"][0], strict=True)
    return {
        "blocked": {way: median(columns[way][0]) for way in WAYS[1:]},
        "ratio": median(thread / synchronous for thread, synchronous in pairs),
        "round": {way: median(columns[way][1]) for way in WAYS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        folder = arguments.result.with_name("run")
        folder.mkdir(exist_ok=True)
        measure_on_rank(lambda ranks: measure(ranks, arguments.engine, folder), arguments.result)
        return
    results = Results("checkpoint", arguments)
    engines = follow(ENGINES, len(ENGINES), "engines")
    found = {engine: measured(RANKS, __file__, f"--engine={engine}") for engine in engines}
    ratios = {f"{engine}_ratio": row["ratio"] for engine, row in found.items()}
    results.write(ratios, engines=found, model=MODEL, ranks=RANKS)


if __name__ == "__main__":
    exit_on_bad_input("bench_checkpoint.py", main)
