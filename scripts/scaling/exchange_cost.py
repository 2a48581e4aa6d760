"""Measures what the halo exchange costs: its share of a training step, for events in sectors.

    python scripts/scaling/exchange_cost.py SECTORS [--parts 2 4 8] [--hidden 64] [--layers 8]
        [--output FILE] [--publish]

Each number of parts is a launch of as many ranks on this host. Two figures: `waiting`, the time a
rank spends in exchanges of a real step, which includes waiting for its neighbours to arrive, and
`transfer`, the same exchanges of the same rows right after a barrier, which is what overlapping
them with computation could hide at most. `packing` is the gather of the rows to be sent. The last
line is one JSON object: `transfer` as a share of the step, by parts.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.cost.footprint import footprint
from bigtrk.parallel.collectives import all_sum
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker, Loader, Share
from bigtrk.training.data.event_source import open_events
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import scoring_router
from bigtrk.training.trainer import StepRunner
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options

STEPS, REPEATS = 5, 20
COLUMNS = ("step", "waiting", "transfer", "packing")


def measure(ranks: Ranks, configuration: Configuration) -> dict[str, Any]:
    """Measures seconds per step, means over ranks, of medians over steps or repeats."""
    source = open_events(configuration.data.train)[0]
    router = scoring_router([source], ranks.world_size)
    world = make_world(ranks, router.num_ranks)
    maker, stopwatch = BatchMaker(configuration, world), world.stopwatch
    shares = Loader(maker.of([source]), world).load(router.route([0]))
    model = build_model(configuration).to(ranks.device)
    engine, _ = make_engine(configuration.engine, model, configuration.optimizer, stopwatch)
    runner = StepRunner(engine, configuration.training, world)
    seconds, waiting = [], []
    for _ in range(STEPS + 1):
        with stopwatch.time("step"):
            runner.run([0], shares, lr=1e-3)
        taken = stopwatch.take()
        seconds.append(taken["step"])
        waiting.append(taken.get("exchange", 0.0))
    figures = [median(seconds[1:]), median(waiting[1:]), *alone(shares[0], configuration)]
    mean = all_sum(figures, ranks.device) / ranks.world_size
    return {"parts": ranks.world_size, **dict(zip(COLUMNS, mean.tolist(), strict=True))}


def alone(share: Share, configuration: Configuration) -> tuple[float, float]:
    """Returns the seconds of a step's exchanges and of its packing, all ranks starting together."""
    plan, width, [batch] = share.exchange, configuration.model.hidden, share.batches
    assert plan, "whole events exchange nothing"
    assert width, "one of our models"
    rows = torch.randn(batch.sector.n_owned, width, device=batch.x.device)
    sent = rows.index_select(0, plan.packed)[: sum(plan.send_splits)]
    halo = batch.sector.n_nodes - batch.sector.n_owned
    back = rows.new_zeros(halo, rows.shape[1])
    forward = timed(lambda: plan.swap(sent, plan.send_splits, plan.recv_splits))
    backward = timed(lambda: plan.swap(back, plan.recv_splits, plan.send_splits))
    packing = timed(lambda: rows.index_select(0, plan.packed))
    feature_counts = configuration.data.feature_counts
    exchanges = len(footprint(configuration.model, *feature_counts, cut=True).exchanged)
    return exchanges * (forward + backward), exchanges * packing


def timed(call: Callable[[], Any]) -> float:
    """Returns the median seconds of `call` after a barrier."""
    found = []
    for _ in range(REPEATS):
        dist.barrier()
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return median(found)


def configured(arguments: argparse.Namespace) -> Configuration:
    model = {"hidden": arguments.hidden, "layers": arguments.layers}
    return Configuration.model_validate({"data": {"train": [arguments.sectors]}, "model": model})


def launch(parts: int, arguments: argparse.Namespace) -> dict[str, Any]:
    model = (f"--hidden={arguments.hidden}", f"--layers={arguments.layers}")
    return measured(parts, __file__, str(arguments.sectors), *model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sectors", type=Path)
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    add_options(parser)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        measure_on_rank(lambda ranks: measure(ranks, configured(arguments)), arguments.result)
        return
    results = Results("exchange_cost", arguments)
    cases = follow(arguments.parts, len(arguments.parts), "exchange")
    rows = [launch(parts, arguments) for parts in cases]
    transfers = {str(row["parts"]): row["transfer"] / row["step"] for row in rows}
    model = configured(arguments).model.model_dump(mode="json")
    results.write(transfers, measured=rows, model=model)


if __name__ == "__main__":
    exit_on_bad_input("exchange_cost.py", main)
