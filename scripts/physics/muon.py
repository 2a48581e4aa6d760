"""AdamW, the optimizer of all engines, against Muon for hidden matrices, at equal time.

    bigtrk build --from heptrkx HEPTRKX_NPZ GRAPHS
    python scripts/physics/muon.py GRAPHS [--out runs/muon] [--minutes 1.5]
        [--output FILE] [--publish]

Each optimizer takes the best of three rates on the first seed, by the least validation loss of an
epoch, and trains with it on all seeds. Optimizers take turns, one process at a time. Finished
trainings are kept.
The last line is one JSON object: mean and deviation of the least validation loss, and epochs, of
each optimizer.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.machine import machine
from bigtrk.records.run_folder import read_run
from bigtrk.training.run_folder import WEIGHTS
from scripts.results import CHECKOUT, Results, add_options

OPTIMIZERS = {"AdamW": "adamw", "Muon": "muon"}
RATES = (1e-3, 3e-3, 1e-2)
SEEDS = (0, 1, 2)
SETTINGS = (
    *("model.hidden=32", "model.layers=4", "training.class_balance=equal", "data.validation=10"),
    *("optimizer.schedule=constant", "training.epochs=1000"),
)


def least_loss(folder: Path) -> float:
    """Returns the least validation loss of an epoch."""
    return min(
        epoch.validation.loss
        for epoch in read_run(folder).epochs
        if epoch.validation and epoch.validation.loss is not None
    )


def trained(arguments: argparse.Namespace, optimizer: str, rate: float, seed: int) -> Path:
    """Trains once, in a process of its own; what was trained is kept."""
    folder: Path = arguments.out / f"{optimizer}-{rate:g}-{seed}"
    if not (folder / WEIGHTS).exists():
        settings = [
            f"data.train=[{arguments.graphs.resolve()}]", *SETTINGS, f"optimizer.lr={rate:g}",
            f"optimizer.name={OPTIMIZERS[optimizer]}", f"training.minutes={arguments.minutes:g}",
            f"training.seed={seed}", f"run.folder={folder.resolve()}",
        ]  # fmt: skip
        command = [sys.executable, "bigtrk/train.py", *settings]
        subprocess.run(command, check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
    say(f"{folder.name}: least validation loss {least_loss(folder):.5f}")
    return folder


def compare(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Trains all; returns a row for each optimizer."""
    first = {
        (name, rate): least_loss(trained(arguments, name, rate, SEEDS[0]))
        for rate in RATES
        for name in OPTIMIZERS
    }
    best = {name: min(RATES, key=lambda rate: first[name, rate]) for name in OPTIMIZERS}
    folders: dict[str, list[Path]] = {name: [] for name in OPTIMIZERS}
    for seed in SEEDS:
        for name in OPTIMIZERS:
            folders[name].append(trained(arguments, name, best[name], seed))
    return {
        name: {**entry(folders[name]), "rate": best[name], "by_rate": _by_rate(first, name)}
        for name in OPTIMIZERS
    }


def _by_rate(first: Mapping[tuple[str, float], float], name: str) -> dict[str, float]:
    return {f"{rate:g}": first[name, rate] for rate in RATES}


def entry(folders: Sequence[Path]) -> dict[str, Any]:
    """Makes the figures of an optimizer, over seeds."""
    losses = [least_loss(folder) for folder in folders]
    epochs = [len(read_run(folder).epochs) for folder in folders]
    return {
        "mean": fmean(losses),
        "deviation": stdev(losses),
        "epochs": fmean(epochs),
        "seeds": losses,
    }


def table(rows: Mapping[str, Mapping[str, Any]], minutes: float) -> Table:
    title, here = f"Trained for {minutes:g} minutes", machine()["cpu"]
    shown = Table("optimizer", "rate", "least validation loss", "epochs", title=title, caption=here)
    for name, row in rows.items():
        loss = f"{row['mean']:.5f} ± {row['deviation']:.5f}"
        shown.add_row(name, f"{row['rate']:g}", loss, f"{row['epochs']:.1f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/muon"))
    parser.add_argument("--minutes", type=float, default=1.5, help="of each training")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("muon", arguments)
    rows = compare(arguments)
    console.print(table(rows, arguments.minutes))
    shown = {
        name: {key: row[key] for key in ("mean", "deviation", "epochs")}
        for name, row in rows.items()
    }
    results.write(shown, optimizers=rows, minutes=arguments.minutes, settings=SETTINGS)


if __name__ == "__main__":
    exit_on_bad_input("muon.py", main)
