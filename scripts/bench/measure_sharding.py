"""Measure what each engine keeps in the memory of a rank; print a table.

    python scripts/bench/measure_sharding.py [--hidden 1024] [--layers 4] [--ranks 2 4]
        [--output FILE] [--publish]

Each case is a launch of real processes (gloo on CPUs, nccl on accelerators) that train two steps on
a graph so small that its activations do not matter. Storages are counted in the second step after
its backward pass, when parameters, gradients and optimizer state exist side by side. The last line
is one JSON object: the bytes that each holds in all, by engine and ranks.
"""

import argparse
import ctypes
import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor
from torch.distributed.tensor import DTensor

from bigtrk.console import console, exit_on_bad_input
from bigtrk.models.protocol import no_exchange
from bigtrk.parallel.collectives import gather_items
from bigtrk.parallel.engines.build import make_engine
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings
from bigtrk.parallel.stopwatch import Stopwatch
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options

ZERO = ("zero1", "zero2", "zero3", "zero3_offload")
ENGINES = {
    "ddp": EngineSettings(),
    **{name: EngineSettings(name="deepspeed", ds_config=name) for name in ZERO},
    "fsdp2": EngineSettings(name="fsdp2"),
}
COLUMNS = ("parameters", "gradients", "optimizer", "other")
NODES, EDGES = 50, 200
HIDDEN = 1024

Storages = dict[int, int]  # bytes by address


def storages(tensors: Iterable[Tensor]) -> Storages:
    """Lists the storages behind `tensors`, each once; of a DTensor this rank's shard."""
    found = {}
    for tensor in tensors:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = local.untyped_storage()
        if storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return found


def alive() -> Iterator[Tensor]:
    """Yields every tensor that Python knows of."""
    gc.collect()
    for item in gc.get_objects():
        # isinstance would wake lazy modules, which warn.
        if issubclass(type(item), Tensor) and not isinstance(item, DTensor):
            yield item


def count(engine: Engine) -> dict[str, int]:
    """Counts bytes per column; a storage counts in the first that it belongs to."""
    seen: Storages = {}
    counted = {}
    held = engine.held()
    for column, tensors in zip(
        COLUMNS, (held.parameters, held.gradients, held.optimizer, alive()), strict=True
    ):
        new = {k: v for k, v in storages(tensors).items() if k not in seen}
        counted[column] = sum(new.values())
        seen |= new
    return counted


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        ("before", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),  # bytes in mappings of their own
        ("between", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),  # bytes in use on the heap
        ("after", ctypes.c_size_t * 2),
    ]


def allocated() -> int | None:
    """Counts the bytes this process has from malloc, whoever asked for them, as a check.

    The count is None where the C library cannot tell.
    """
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return None
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def measure(ranks: Ranks, configuration: Configuration) -> dict[str, Any]:
    """Counts what the fullest rank holds in the second step, in bytes. Collective."""
    device, before = ranks.device, allocated()
    model = build_model(configuration).to(device)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    engine, name = make_engine(
        configuration.engine, model, configuration.optimizer, Stopwatch(device)
    )
    backward(engine, device)
    engine.step(1e-3)
    backward(engine, device)
    held = count(engine)
    after = allocated()
    if before is not None and after is not None:
        held["process"] = after - before
    everyone = gather_items(held)
    fullest = {column: max(rank[column] for rank in everyone) for column in held}
    return {"engine": name, "numbers": numbers, "bytes": fullest}


def backward(engine: Engine, device: torch.device) -> None:
    """Runs one micro-step on a random graph."""
    x, edge_features = torch.randn(NODES, 4, device=device), torch.randn(EDGES, 6, device=device)
    edge_index = torch.randint(NODES, (2, EDGES), device=device)
    with engine.micro_step(last=True):
        engine.backward(engine.model(x, edge_features, edge_index, NODES, no_exchange).mean())


def configured(arguments: argparse.Namespace) -> Configuration:
    model = {"hidden": arguments.hidden, "layers": arguments.layers}
    return Configuration.model_validate({"model": model, "engine": ENGINES[arguments.case]})


def launch(case: str, ranks: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures one case in processes of its own."""
    model = (f"--hidden={arguments.hidden}", f"--layers={arguments.layers}")
    found = measured(ranks, __file__, f"--case={case}", *model)
    return {"case": case, "ranks": ranks, **found}


def show(report: dict[str, Any]) -> None:
    title = (
        f"Held per rank, MB: hidden {report['hidden']}, {report['layers']} layers, "
        f"{report['measured'][0]['numbers'] / 1e6:.1f} M parameters"
    )
    table = Table(title=title)
    columns = list(report["measured"][0]["bytes"])
    for column in ("engine", "ranks"):
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    for row in report["measured"]:
        values = (f"{row['bytes'][column] / 1e6:,.1f}" for column in columns)
        table.add_row(row["case"], str(row["ranks"]), *values)
    console.print(table)


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Makes the last line."""
    return {
        f"{row['case']}_{row['ranks']}": sum(row["bytes"][column] for column in COLUMNS)
        for row in rows
    }


def file_name(hidden: int) -> str:
    """Names the published file, which another width does not replace."""
    return "sharding" if hidden == HIDDEN else f"sharding_hidden{hidden}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hidden", type=int, default=HIDDEN)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add_options(parser)
    parser.add_argument("--case", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result:
        measure_on_rank(lambda ranks: measure(ranks, configured(arguments)), arguments.result)
        return
    results = Results(file_name(arguments.hidden), arguments)
    rows = [launch(c, ranks, arguments) for ranks in arguments.ranks for c in arguments.engines]
    report = {"hidden": arguments.hidden, "layers": arguments.layers, "measured": rows}
    show(report)
    results.write(summary(rows), **report)


if __name__ == "__main__":
    exit_on_bad_input("measure_sharding.py", main)
