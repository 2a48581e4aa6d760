"""Measure what each engine keeps in the memory of a rank; print a table.

    python scripts/bench/measure_sharding.py [--hidden 1024] [--layers 4] [--ranks 2 4]
        [--output FILE] [--publish]

Each case is a launch of real processes (gloo on CPUs, nccl on accelerators) that train two steps on
a graph so small that its activations do not matter. Storages are counted in the second step after
its backward pass, when parameters, gradients and optimizer state exist side by side. The last line
is one JSON object: the bytes that each holds in all, by engine and ranks.
"""

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input
from bigtrk.parallel.settings import EngineSettings
from bigtrk.training.settings import Configuration
from scripts.on_ranks import measure_on_rank, measured
from scripts.results import Results, add_options
from tests.distributed.held_memory import COLUMNS, measure

ZERO = ("zero1", "zero2", "zero3", "zero3_offload")
ENGINES = {
    "ddp": EngineSettings(),
    **{name: EngineSettings(name="deepspeed", ds_config=name) for name in ZERO},
    "fsdp2": EngineSettings(name="fsdp2"),
}
HIDDEN = 1024


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
