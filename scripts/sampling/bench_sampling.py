"""Mini-batches per second: bigtrk's ShaDow engines and PyG's ShaDowKHopSampler.

    bigtrk build EVENTS GRAPHS --learn-windows --pt-min 0.3
    python scripts/sampling/bench_sampling.py GRAPHS [--install] [--output FILE] [--publish]

PyG's sampler needs torch-scatter and torch-sparse, which pip compiles in about 12 minutes;
--install does it. Without them bigtrk is measured alone, and the speedup is null.

All sides have the same threads and take turns, in several rounds of equally many mini-batches,
and deliver features and labels with the subgraphs; none samples ahead. Medians over rounds; bulks
of k. The last line is one JSON object: `shadow_speedup` is the default engine's batches per second
over PyG's, at the k the trainer uses.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, follow, say
from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.machine import version
from bigtrk.sampling.engines import Products, fastest, library, sample, sample_bulk
from bigtrk.sampling.shadow import ShaDow, epoch_roots, shadow_sector
from bigtrk.sampling.subgraphs import Sampler, epoch_key, in_edges
from scripts.results import Results, add_options

NEEDED = ("torch-scatter", "torch-sparse")
SHADOW = ShaDow()
SEED = 0
# Yields the numbers of nodes and edges of one mini-batch after the other.
Side = Callable[[], Iterator[tuple[int, int]]]


def install() -> None:
    """Installs what PyG's sampler needs into this environment; for the CPU alone."""
    missing = [name for name in NEEDED if version(name) is None]
    if not missing:
        return
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", *missing]
    say(f"compiling for about 12 minutes: {' '.join(command)}")
    environment = {**os.environ, "FORCE_ONLY_CPU": "1", "MAX_JOBS": str(os.cpu_count())}
    subprocess.run([sys.executable, "-m", "pip", "install", "setuptools", "wheel"], check=True)
    subprocess.run(command, check=True, env=environment)


def pyg(graph: EventGraph) -> Iterator[tuple[int, int]]:
    """Yields PyG's mini-batches, in its own shuffled order."""
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler

    data = Data(
        x=graph.node_features,
        edge_index=graph.edge_index,
        edge_attr=graph.edge_features,
        truth=graph.y,
        hit_id=graph.hit_id,
        particle_id=graph.particle_id,
        hit_weight=graph.hit_weight,
        modules=graph.modules,
        num_nodes=graph.n_nodes,
    )
    walk = SHADOW.walk
    sampler = ShaDowKHopSampler(
        data, walk.depth, walk.fanout, batch_size=SHADOW.batch_size, shuffle=True
    )
    for batch in sampler:
        yield batch.num_nodes, batch.num_edges


def bigtrk(graph: EventGraph, engine: Sampler, k: int) -> Iterator[tuple[int, int]]:
    """Yields mini-batches of ours, k sampled at once."""
    whole = whole_sector(graph)
    edges, key = in_edges(whole.edge_index, whole.n_nodes), epoch_key(SEED, 0)
    roots = epoch_roots(whole.n_nodes, SHADOW.batch_size, SEED, 0)
    for i in range(0, len(roots), k):
        for subgraphs in sample_bulk(edges, roots[i : i + k], SHADOW.walk, key, engine):
            sector = shadow_sector(whole, subgraphs)
            yield sector.n_nodes, sector.n_edges


def engines() -> dict[str, Sampler]:
    """Returns all engines that run here."""
    found: dict[str, Sampler] = {"products": Products(torch.device("cpu"))}
    if library() is not None:
        found["native"] = sample
    if torch.cuda.is_available():
        found["products on the GPU"] = Products(torch.device("cuda"))
    return found


def sides_of(graph: EventGraph, bulks: list[int]) -> dict[str, Side]:
    sides: dict[str, Side] = {
        f"{name}, k = {k}": partial(bigtrk, graph, engine, k)
        for name, engine in engines().items()
        for k in bulks
    }
    if all(version(name) for name in NEEDED):
        sides["PyG"] = partial(pyg, graph)
    return sides


def check_size(graph: EventGraph, batches: int) -> None:
    """Checks that the graph has roots for the mini-batches; raises InputError if it has not."""
    if graph.n_nodes < batches * SHADOW.batch_size:
        raise InputError(
            f"{graph.name} has {graph.n_nodes:,} nodes, too few for {batches} mini-batches of "
            f"{SHADOW.batch_size} roots; use a larger event, fewer --rounds or smaller --bulks"
        )


def timed(sides: dict[str, Side], batches: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Times each side, which goes on in its epoch in each round, after `batches` untimed ones."""
    running = {name: side() for name, side in sides.items()}
    for name in follow(running, len(running), "warm-up"):
        list(islice(running[name], batches))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    sizes: dict[str, list[tuple[int, int]]] = {name: [] for name in sides}
    for _ in follow(range(rounds), rounds, "rounds"):
        for name, iterator in running.items():
            start = time.perf_counter()
            sizes[name] += islice(iterator, batches)
            seconds[name].append(time.perf_counter() - start)
    return {
        name: {
            "batches_per_second": batches / median(seconds[name]),
            "slowest_round": batches / max(seconds[name]),
            "fastest_round": batches / min(seconds[name]),
            "nodes_per_batch": sum(n for n, _ in sizes[name]) / len(sizes[name]),
            "edges_per_batch": sum(e for _, e in sizes[name]) / len(sizes[name]),
        }
        for name in sides
    }


def default_engine() -> str:
    """Names the engine that trainings on this machine use."""
    default = fastest(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    return next(name for name, found in engines().items() if found == default)


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Makes the last line."""
    rate = {name: row["batches_per_second"] for name, row in rows.items()}
    own, other = rate[f"{default_engine()}, k = {SHADOW.bulk}"], rate.get("PyG")
    return {
        "shadow_speedup": own / other if other else None,
        "bulk": SHADOW.bulk,
        "batches_per_second": rate,
        "threads": torch.get_num_threads(),
    }


def table(rows: dict[str, dict[str, Any]]) -> Table:
    shown = Table("side", "batches / s", "slowest", "fastest", "nodes / batch", "edges / batch")
    for name, row in rows.items():
        rates = (row[key] for key in ("batches_per_second", "slowest_round", "fastest_round"))
        sizes = (row[key] for key in ("nodes_per_batch", "edges_per_batch"))
        shown.add_row(name, *(f"{rate:.1f}" for rate in rates), *(f"{size:,.0f}" for size in sizes))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path, help="a folder that `bigtrk build` made")
    parser.add_argument("--event", help="the first event if not given")
    parser.add_argument("--install", action="store_true", help="what PyG's sampler needs")
    parser.add_argument("--bulks", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("sampling", arguments)
    if arguments.install:
        install()
    folder = GraphFolder(arguments.graphs)
    graph = folder.read(arguments.event or folder.events[0])
    say(f"{graph.name}: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges")
    bulks = sorted({*arguments.bulks, SHADOW.bulk})
    check_size(graph, max(bulks) * (arguments.rounds + 1))
    sides = sides_of(graph, bulks)
    if "PyG" not in sides:
        say(f"PyG's sampler is not measured: it needs {' and '.join(NEEDED)} (--install)")
    rows = timed(sides, max(bulks), arguments.rounds)
    console.print(table(rows))
    size = {"event": graph.name, "nodes": graph.n_nodes, "edges": graph.n_edges}
    results.write(summary(rows), graph=size, engine=default_engine(), rows=rows)


if __name__ == "__main__":
    exit_on_bad_input("bench_sampling.py", main)
