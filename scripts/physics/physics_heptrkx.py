"""Edge metrics of models on real graphs: 70 events to train on, 10 to validate.

    bigtrk build --from heptrkx HEPTRKX_NPZ GRAPHS
    python scripts/physics/physics_heptrkx.py GRAPHS [--pyg] [--out runs/heptrkx]
        [--output FILE] [--publish]

Interaction GNN, attention network and an MLP without message passing are trained with one recipe,
three seeds each. Figures are those of validation after the last epoch, means and standard
deviations over seeds. With `--pyg` the first, the last, and the networks of PyG's layers in
examples/pyg_nets.py train for five epochs, as result `pyg_heptrkx`. Finished runs are kept. The
last line is one JSON object: the means of each model.
"""

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.machine import machine, software
from bigtrk.records.run_folder import Run, read_run
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import LOG, torchrun_command, torchrun_environment, train_logged
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
PYG_MODELS = {
    **{name: MODELS[name] for name in ("interaction", "mlp")},
    **{
        name: ("model.name=pyg", f"model.options.module=pyg_nets:{name}")
        for name in ("GAT", "GCN", "SAGE")
    },
}
PYG_RECIPE = tuple(one.replace("epochs=25", "epochs=5") for one in RECIPE)
EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = (0, 1, 2)
METRICS = ("auc", "efficiency", "purity", "loss")
VALIDATION = 10


def trained(model: Sequence[str], seed: int, graphs: Path, folder: Path) -> Run:
    """Returns the finished run of a model's settings and a seed in `folder`."""
    if not (folder / WEIGHTS).exists():
        shutil.rmtree(folder, ignore_errors=True)
        say(f"{folder.name}")
        data = [f"data.train=[{graphs}]", f"data.validation={VALIDATION}"]
        own = [f"training.seed={seed}", f"run.folder={folder}"]
        path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
        here = {**torchrun_environment(1), "PYTHONPATH": path}
        train_logged(torchrun_command(1, TRAIN, [*data, *model, *own]), folder / LOG, here)
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
    parser.add_argument("--pyg", action="store_true", help="five epochs, with networks of PyG")
    parser.add_argument("--out", type=Path, default=Path("runs/heptrkx"))
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("pyg_heptrkx" if arguments.pyg else "physics_heptrkx", arguments)
    models, recipe = (PYG_MODELS, PYG_RECIPE) if arguments.pyg else (MODELS, RECIPE)
    out = arguments.out / ("five_epochs" if arguments.pyg else "")
    rows = {
        name: entry(
            [
                trained([*recipe, *model], seed, arguments.graphs, out / f"{name}-{seed}")
                for seed in SEEDS
            ]
        )
        for name, model in models.items()
    }
    settings = {"recipe": recipe, "models": models, "validation_events": VALIDATION}
    console.print(table(rows))
    results.write(summary(rows), models=rows, settings=settings)


if __name__ == "__main__":
    exit_on_bad_input("physics_heptrkx.py", main)
