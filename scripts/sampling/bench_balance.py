"""Step times and load imbalance by the way events are batched and laid over ranks.

    bigtrk build --from heptrkx EVENTS GRAPHS
    python scripts/sampling/bench_balance.py GRAPHS [--output FILE] [--publish]

`plain` is what a distributed sampler does: events in any order, every W-th to the same rank. The
others are bigtrk's `training.batching`, each laid over ranks by predicted cost. Figures are
predicted for many ranks, from the events' numbers of operations, with one and several events to a
rank; they are measured on 2 ranks of this host with 4 each, where all take turns, epoch by epoch.
Imbalance: the most loaded rank's computing over the mean's, mean over steps; spread: standard
deviation of step times over their mean.
"""

import argparse
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input
from bigtrk.machine import machine
from bigtrk.parallel.collectives import all_max, all_sum
from bigtrk.parallel.engines.build import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.routing import WHOLE, Assignment, MicroStep, Router
from bigtrk.parallel.world import make_world
from bigtrk.training.costs import operations
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.batching import Batching, step_items
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options

WAYS = ("plain", *get_args(Batching))
PREDICTED_RANKS, PREDICTED_EVENTS, PER_RANK = (8, 64, 512), 8192, (1, 4)
RANKS, MEASURED_PER_RANK, EPOCHS = 2, 4, 3


def steps_of(
    way: str, costs: list[float], ranks: int, per_rank: int, epoch: int
) -> list[tuple[list[int], list[MicroStep]]]:
    """Lists the events and micro-steps of each step of an epoch."""
    per_step = ranks * per_rank
    if way == "plain":
        steps = step_items(costs, per_step, seed=0, epoch=epoch)
        return [(step, plain(step, ranks)) for step in steps]
    router = Router([{WHOLE: cost} for cost in costs], ranks)
    kind = next(kind for kind in get_args(Batching) if kind == way)
    steps = step_items(costs, per_step, seed=0, epoch=epoch, batching=kind)
    return [(step, router.route(step)) for step in steps]


def plain(step: list[int], ranks: int) -> list[MicroStep]:
    rows = [step[i : i + ranks] for i in range(0, len(step), ranks)]
    shares = [[Assignment(event, (0,), 1, rank) for rank, event in enumerate(row)] for row in rows]
    return [row + [None] * (ranks - len(row)) for row in shares]


def loads_of(micro_steps: list[MicroStep], costs: list[float]) -> list[float]:
    """Sums the cost of each rank's events."""
    loads = [0.0] * len(micro_steps[0])
    for row in micro_steps:
        for rank, share in enumerate(row):
            loads[rank] += costs[share.event] if share else 0.0
    return loads


def figures(loads: np.ndarray[Any, Any]) -> dict[str, float]:
    """Computes figures of the seconds [steps, W] that each rank computes."""
    longest = loads.max(axis=1)
    return {
        "imbalance": float((longest / loads.mean(axis=1)).mean()),
        "spread": float(longest.std() / longest.mean()),
        "epoch": float(longest.sum()),
    }


def predict(sources: list[EventSource], configuration: Configuration) -> list[dict[str, Any]]:
    """Makes rows of predicted figures; events are drawn from those there are."""
    sizes = [(source.record["nodes"], source.record["edges"]) for source in sources]
    known = operations(configuration, sizes)
    costs = np.random.default_rng(0).choice(known, PREDICTED_EVENTS).tolist()
    rows = []
    for ranks in PREDICTED_RANKS:
        for per_rank in PER_RANK:
            for way in WAYS:
                steps = steps_of(way, costs, ranks, per_rank, epoch=0)
                found = figures(np.array([loads_of(rows, costs) for _, rows in steps]))
                rows.append({"ranks": ranks, "per_rank": per_rank, "way": way, **found})
    return rows


def measure(ranks: Ranks, configuration: Configuration) -> dict[str, Any]:
    """Measures real steps on all ranks, by way; gradients are averaged apart from computing."""
    world, sources = make_world(ranks), open_events(configuration.data.train)
    stopwatch = world.stopwatch
    sizes = [(source.record["nodes"], source.record["edges"]) for source in sources]
    costs = operations(configuration, sizes)
    model = build_model(configuration).to(ranks.device)
    engine, _ = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    runner = StepRunner(engine, configuration.training, world)
    loader = Loader(BatchMaker(configuration, world).of(sources), world)
    loads: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for epoch in range(EPOCHS + 1):
        for way in WAYS:
            steps = steps_of(way, costs, ranks.world_size, MEASURED_PER_RANK, epoch)
            batches = loader.steps([micro_steps for _, micro_steps in steps])
            for events, _ in steps:
                mine = next(batches)
                stopwatch.take()
                start = stopwatch.now()
                runner.run(events, mine, lr=1e-4)
                busy = stopwatch.now() - start - stopwatch.take().get("reduce", 0.0)
                if epoch:  # the first one warms up
                    longest, total = all_max([busy], ranks.device), all_sum([busy], ranks.device)
                    rest = (float(total) - float(longest)) / max(ranks.world_size - 1, 1)
                    loads[way].append([float(longest)] + [rest] * (ranks.world_size - 1))
    return {way: figures(np.array(found)) for way, found in loads.items()}


def configured(graphs: Path) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [graphs]},
            "model": {"hidden": 32, "layers": 4},
            "engine": {"coalesced": True},
        }
    )


def table(rows: list[dict[str, Any]]) -> Table:
    named = machine()
    shown = Table(
        "ranks", "events / rank", "batching", "imbalance", "spread %", "epoch, of plain",
        title="Balance", caption=f"{named['cpu']}, {named['cores']} cores",
    )  # fmt: skip
    for row in rows:
        base = next(
            other["epoch"]
            for other in rows
            if other["way"] == "plain"
            and all(other[key] == row[key] for key in ("ranks", "per_rank", "kind"))
        )
        shown.add_row(
            f"{row['ranks']} {row['kind']}",
            str(row["per_rank"]),
            row["way"],
            f"{row['imbalance']:.3f}",
            f"{100 * row['spread']:.1f}",
            f"{row['epoch'] / base:.3f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path)
    add_options(parser)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    configuration = configured(arguments.graphs)
    if arguments.result:
        measure_on_rank(lambda ranks: measure(ranks, configuration), arguments.result)
        return
    results = Results("balance", arguments)
    predicted = predict(open_events([arguments.graphs]), configuration)
    found = measured(RANKS, __file__, str(arguments.graphs))
    shared = {"kind": "measured", "ranks": RANKS, "per_rank": MEASURED_PER_RANK}
    rows = [{"kind": "predicted", **row} for row in predicted]
    rows += [{**shared, "way": way, **row} for way, row in found.items()]
    console.print(table(rows))
    results.write(found, rows=rows)


if __name__ == "__main__":
    exit_on_bad_input("bench_balance.py", main)
