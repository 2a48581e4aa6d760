"""Epoch time of ShaDow training by the number of ranks p and of mini-batches sampled at once, k.

    bigtrk build EVENTS GRAPHS --learn-windows --pt-min 0.3
    python scripts/sampling/bench_shadow_epochs.py GRAPHS [--output FILE] [--publish]

The setting is that of figure 3 of Tripathy et al.: mini-batches of 256 roots over all ranks (256 /
p on each), depth 3, fanout 6. Each p is a launch of as many ranks on this host, which share its
cores; the k take turns. `sampling` is what sampling takes by itself, one bulk after the other;
`waiting` is what is left of it when it runs while the step before is computed. Medians are over
rounds of as many steps, scaled to an epoch over the first event of GRAPHS. The last line is one
JSON object with the seconds of an epoch, by p and k.
"""

import argparse
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, follow
from bigtrk.machine import machine
from bigtrk.parallel.collectives import all_sum
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import Stopwatch, make_world
from bigtrk.sampling.engines import fastest, sample_bulk
from bigtrk.sampling.shadow import ShaDow, epoch_roots, shadow_sector
from bigtrk.sampling.subgraphs import epoch_key, in_edges
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.data.event_source import EventSource, open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import ShadowSteps
from bigtrk.training.trainer import StepRunner
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options

STEPS, ROUNDS = 16, 3
PARTS = ("epoch", "waiting", "sampling", "reduce")


def measure(ranks: Ranks, configuration: Configuration, bulks: list[int]) -> dict[str, Any]:
    """Measures the seconds of an epoch by k, means over ranks."""
    world, source = make_world(ranks), open_events(configuration.data.train)[0]
    model = build_model(configuration).to(ranks.device)
    engine, _ = make_engine(configuration.engine, model, configuration.optimizer, world.stopwatch)
    runner = StepRunner(engine, configuration.training, world)
    maker = BatchMaker(configuration, world)
    found: dict[int, list[list[float]]] = {k: [] for k in bulks}
    for epoch in range(ROUNDS + 1):
        for k in bulks:
            steps = ShadowSteps([source], ShaDow(bulk=k), 0, ranks)
            seconds = [*train(steps, epoch, maker, runner), sample(source, k, epoch, ranks)]
            mean = all_sum(seconds, ranks.device) / ranks.world_size
            scale = steps.per_epoch / STEPS
            if epoch:  # the first round warms up
                found[k].append([scale * part for part in mean.tolist()])
    rows = [[median(column) for column in zip(*found[k], strict=True)] for k in bulks]
    names = ("epoch", "waiting", "reduce", "sampling")
    return {str(k): dict(zip(names, row, strict=True)) for k, row in zip(bulks, rows, strict=True)}


def train(steps: ShadowSteps, epoch: int, maker: BatchMaker, runner: StepRunner) -> list[float]:
    """Returns the seconds of some steps: in all, waiting for data, reducing."""
    routes = steps.of(epoch)[:STEPS]
    stopwatch = maker.world.stopwatch
    loader = Loader(steps.reader(epoch, maker), maker.world)
    batches = loader.steps([step.micro_steps for step in routes])
    stopwatch.take()
    with stopwatch.time("all"):
        for step in routes:
            runner.run(step.events, next(batches), lr=1e-4)
    taken = stopwatch.take()
    return [taken["all"], taken.get("data", 0.0), taken.get("reduce", 0.0)]


def sample(source: EventSource, k: int, epoch: int, ranks: Ranks) -> float:
    """Returns the seconds to sample this rank's share of `k` mini-batches, nothing else."""
    whole, shadow, stopwatch = source.read(0, 1), ShaDow(bulk=k), Stopwatch(ranks.device)
    graph, key = in_edges(whole.edge_index, whole.n_nodes), epoch_key(0, epoch)
    roots = epoch_roots(whole.n_nodes, shadow.batch_size, 0, epoch, ranks.rank, ranks.world_size)
    engine = fastest(ranks.device)
    with stopwatch.time("sampling"):
        batches = list(islice(roots, STEPS))
        for i in range(0, len(batches), k):
            for subgraphs in sample_bulk(graph, batches[i : i + k], shadow.walk, key, engine):
                shadow_sector(whole, subgraphs)
    return stopwatch.take()["sampling"]


def configured(arguments: argparse.Namespace) -> Configuration:
    return Configuration.model_validate(
        {
            "data": {"train": [arguments.graphs]},
            "model": {"hidden": arguments.hidden, "layers": arguments.layers},
            "engine": {"coalesced": True},
        }
    )


def table(found: dict[str, Any]) -> Table:
    named = machine()
    caption = f"{named['cpu']}, {named['cores']} cores shared by all ranks"
    shown = Table("p", "k", *(f"{part} s" for part in PARTS), title="ShaDow epoch", caption=caption)
    for ranks, by_bulk in found.items():
        for k, row in by_bulk.items():
            shown.add_row(ranks, k, *(f"{row[part]:.2f}" for part in PARTS))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--bulks", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    add_options(parser)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    configuration = configured(arguments)
    if arguments.result:
        measure_on_rank(
            lambda ranks: measure(ranks, configuration, arguments.bulks), arguments.result
        )
        return
    results = Results("shadow_epochs", arguments)
    given = [f"--hidden={arguments.hidden}", f"--layers={arguments.layers}", "--bulks"]
    given += map(str, arguments.bulks)
    found = {
        str(ranks): measured(ranks, __file__, str(arguments.graphs), *given)
        for ranks in follow(arguments.ranks, len(arguments.ranks), "ranks")
    }
    record = open_events([arguments.graphs])[0].record
    facts = {"graph": {key: record[key] for key in ("event", "nodes", "edges")}}
    model = configuration.model.model_dump(mode="json")
    console.print(table(found))
    epochs = {p: {k: row["epoch"] for k, row in rows.items()} for p, rows in found.items()}
    results.write(epochs, epoch_seconds=found, model=model, **facts)


if __name__ == "__main__":
    exit_on_bad_input("bench_shadow_epochs.py", main)
