"""How long training waits for a checkpoint: written by a thread, or before the next step.

    python scripts/bench_checkpoint.py [--output docs/results/checkpoint.json]

On 2 ranks of this host, each engine a launch of its own, on a graph so small that steps take no
longer than they must. Three ways take turns. `none`: 16 steps. `thread`, as every training does:
the state is copied to host memory, and 16 steps are trained while a thread of each rank writes it.
`synchronous`: the same steps begin when all ranks have written, and read back, what they copied.
Seconds of the slowest rank, medians over 15 rounds: `blocked`, before the steps; `round`, until
steps and writing are done.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist
from rich.table import Table

from bigtrk.console import console, follow, say
from bigtrk.files import write_json
from bigtrk.machine import machine, software
from bigtrk.parallel.collectives import all_max
from bigtrk.parallel.engines import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.checkpoint import Checkpointer, Circumstances
from bigtrk.training.model_files import build_model
from bigtrk.training.progress import EpochTotals, Progress
from bigtrk.training.schedule import Plateau
from bigtrk.training.settings import Configuration
from bigtrk.training.spikes import LossHistory
from launching import measure_on_rank, measured
from measure_sharding import ENGINES as SETTINGS
from measure_sharding import backward

ENGINES, WAYS = ("ddp", "fsdp2", "zero3"), ("none", "thread", "synchronous")
RANKS, STEPS, ROUNDS = 2, 16, 15
MODEL = {"hidden": 128, "layers": 8}
DEFAULT = Path(__file__).parents[1] / "docs" / "results" / "checkpoint.json"


def measure(ranks: Ranks, engine_name: str, folder: Path) -> dict[str, Any]:
    """Seconds [round][blocked, round] by way, and the size of what is written. Collective."""
    configuration = Configuration.model_validate({"model": MODEL, "engine": SETTINGS[engine_name]})
    model, stopwatch = build_model(configuration).to(ranks.device), Stopwatch(ranks.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    engine, name = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    rounds: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    with Checkpointer(folder, engine, Circumstances("", name, {})) as checkpoints:
        for number in range(ROUNDS + 1):
            for place, way in enumerate(WAYS):
                dist.barrier()
                start = stopwatch.now()
                if way != "none":
                    checkpoints.save(progress(number * len(WAYS) + place))
                if way == "synchronous":
                    checkpoints.wait()
                blocked = stopwatch.now() - start
                for _ in range(STEPS):
                    backward(engine, ranks.device)
                    engine.step(1e-4)
                checkpoints.wait()
                seconds = [blocked, stopwatch.now() - start]
                if number:  # the first round warms up
                    rounds[way].append(all_max(seconds, ranks.device).tolist())
    newest = max((folder / "checkpoints").glob("step-*"))
    size = sum(path.stat().st_size for path in newest.iterdir())
    return {"engine": name, "parameters": parameters, "bytes": size, "rounds": rounds}


def progress(step: int) -> Progress:
    """Each checkpoint has a number of its own."""
    return Progress(0, step, step, Plateau(), LossHistory(), EpochTotals())


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """Medians over rounds, of seconds and of what is formed from those of the same round.

    ratio: of the seconds blocked. added: to the round by the checkpoint.
    """
    rounds = found["rounds"]
    none, thread, synchronous = (rounds[way] for way in WAYS)
    pairs = list(zip(thread, synchronous, strict=True))
    return {
        "blocked": {way: median(row[0] for row in rounds[way]) for way in WAYS[1:]},
        "ratio": median(a[0] / b[0] for a, b in pairs),
        "round": {way: median(row[1] for row in rounds[way]) for way in WAYS},
        "added": {
            way: median(a[1] - b[1] for a, b in zip(rounds[way], none, strict=True))
            for way in WAYS[1:]
        },
    }


def table(found: dict[str, Any]) -> Table:
    first = next(iter(found.values()))
    title = f"Checkpoint of {first['parameters'] / 1e6:.2f} M parameters"
    columns = ("engine", "MiB", "way", "blocked ms", "round ms", "added ms")
    shown = Table(*columns, title=title, caption=f"{machine()['cpu']}, {RANKS} ranks")
    for row in found.values():
        for way in WAYS:
            blocked, added = (row[key].get(way) for key in ("blocked", "added"))
            shown.add_row(
                row["engine"],
                f"{row['bytes'] / 2**20:.1f}",
                way,
                f"{1000 * blocked:.1f}" if blocked else "",
                f"{1000 * row['round'][way]:.0f}",
                f"{1000 * added:+.0f}" if added is not None else "",
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=DEFAULT)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        folder = arguments.result.with_name("run")
        measure_on_rank(lambda ranks: measure(ranks, arguments.engine, folder), arguments.result)
        return
    found = {}
    for engine in follow(ENGINES, len(ENGINES), "engines"):
        row = measured(RANKS, __file__, f"--engine={engine}")
        found[engine] = {**row, **figures(row)}
    facts = {"model": MODEL, "ranks": RANKS, "machine": machine(), "software": software()}
    write_json(arguments.output, {"engines": found, **facts})
    console.print(table(found))
    say(f"written to {arguments.output}")
    print(
        json.dumps(
            {engine: {**row["blocked"], "ratio": row["ratio"]} for engine, row in found.items()}
        )
    )


if __name__ == "__main__":
    main()
