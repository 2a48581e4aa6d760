"""Edge metrics of the three models on real graphs: 70 events to train on, 10 to validate.

    bigtrk build --from heptrkx HEPTRKX_NPZ GRAPHS
    python scripts/physics/physics_heptrkx.py GRAPHS [--out runs/heptrkx]
        [--output FILE] [--publish]

Interaction GNN, attention network and an MLP without message passing are trained with one recipe,
three seeds each. Figures are those of validation after the last epoch, means and standard
deviations over seeds. Runs that are finished are kept. The last line is one JSON object: the means
of each model.
"""

import argparse
import shutil
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.machine import machine, software
from bigtrk.records.run_folder import Run, read_run
from bigtrk.studies.launch import torchrun_command, train_logged
from bigtrk.studies.scaling.run_series import LOG, TRAIN
from bigtrk.training.run_folder import WEIGHTS
from scripts.results import Results, add_options

MODELS = {
    "interaction": ("model.hidden=32", "model.layers=6"),
    "attention": ("model.name=attention", "model.hidden=32", "model.layers=6"),
    "mlp": ("model.name=mlp", "model.hidden=64"),
}
RECIPE = (
    "training.class_balance=equal",
    "training.epochs=25",
    "optimizer.lr=0.002",
    "optimizer.schedule=cosine",
    "optimizer.warmup_steps=50",
)
SEEDS = (0, 1, 2)
METRICS = ("auc", "efficiency", "purity", "loss")
VALIDATION = 10


def trained(name: str, seed: int, graphs: Path, out: Path) -> Run:
    """Returns the finished run of a model and seed."""
    folder = out / f"{name}-{seed}"
    if not (folder / WEIGHTS).exists():
        shutil.rmtree(folder, ignore_errors=True)
        say(f"{folder.name}")
        data = [f"data.train=[{graphs}]", f"data.validation={VALIDATION}"]
        own = [f"training.seed={seed}", f"run.folder={folder}"]
        train_logged(
            torchrun_command(1, TRAIN, [*data, *RECIPE, *MODELS[name], *own]), folder / LOG
        )
    return read_run(folder)


def entry(runs: list[Run]) -> dict[str, Any]:
    """Makes a model's row: mean and standard deviation over seeds, and each seed's value."""
    last = [run.epochs[-1].validation for run in runs]
    values = {name: [float(getattr(scores, name)) for scores in last] for name in METRICS}
    seconds = [sum(epoch.seconds or 0.0 for epoch in run.epochs) for run in runs]
    return {
        "parameters": runs[0].record.parameters,
        "training_seconds": fmean(seconds),
        **{
            name: {"mean": fmean(found), "deviation": stdev(found), "seeds": found}
            for name, found in values.items()
        },
    }


def table(rows: dict[str, dict[str, Any]]) -> Table:
    here, versions = machine(), software()
    caption = f"{here['cpu']}, {here['cores']} cores; torch {versions['torch']}"
    shown = Table("model", "parameters", *METRICS, "s", title="HEPTrkX graphs", caption=caption)
    for name, row in rows.items():
        cells = [
            f"{row[metric]['mean']:.5f} ± {row[metric]['deviation']:.5f}" for metric in METRICS
        ]
        shown.add_row(name, f"{row['parameters']:,}", *cells, f"{row['training_seconds']:.0f}")
    return shown


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Makes the last line: means over seeds, by model."""
    return {name: {key: row[key]["mean"] for key in METRICS} for name, row in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/heptrkx"))
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("physics_heptrkx", arguments)
    rows = {
        name: entry([trained(name, seed, arguments.graphs, arguments.out) for seed in SEEDS])
        for name in MODELS
    }
    settings = {"recipe": RECIPE, "models": MODELS, "validation_events": VALIDATION}
    console.print(table(rows))
    results.write(summary(rows), models=rows, settings=settings)


if __name__ == "__main__":
    exit_on_bad_input("physics_heptrkx.py", main)
