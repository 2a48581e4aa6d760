"""Random search, TPE with successive halving, and a population, at equal total time.

    bigtrk build --from heptrkx HEPTRKX_NPZ GRAPHS
    python scripts/physics/search_methods.py GRAPHS [--out runs/search]
        [--quick] [--output FILE] [--publish]

Three seeds each. The population trains first; the others draw trials until they have trained as
long, by the seconds of all epochs of all trials. The figure is the AUC of the best epoch of all, on
the same validation events. Finished searches are kept. The last line is one JSON object: mean,
deviation and seconds of each method.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.machine import machine
from bigtrk.records.run_folder import Run, read_run
from bigtrk.studies.search.plan import plan_search
from bigtrk.studies.search.search import run_search
from bigtrk.train import DEFAULT
from scripts.results import Results, add_options

METRIC = "auc"
SPACE = {
    "optimizer.lr": {"low": 1e-4, "high": 3e-2, "log": True},
    "optimizer.weight_decay": {"low": 1e-4, "high": 1e-1, "log": True},
}
WAYS: dict[str, dict[str, Any]] = {
    "pbt": {"population": {"every": 2}},
    "random": {"sampler": "random", "pruning": None},
    "tpe_asha": {"sampler": "tpe", "pruning": {"first": 2, "factor": 3}},
}
TITLES = {"random": "random", "tpe_asha": "TPE, successive halving", "pbt": "population"}
SEEDS = (0, 1, 2)
SETTINGS = ("model.hidden=16", "model.layers=4", "training.class_balance=equal")


@dataclass(frozen=True)
class Extent:
    """The extent of a comparison: trials of the population, epochs, events to validate on."""

    members: int
    epochs: int
    validation: int
    seeds: Sequence[int]


WHOLE, QUICK = Extent(8, 12, 10, SEEDS), Extent(2, 2, 1, SEEDS[:2])


@dataclass(frozen=True)
class Found:
    """A search: its best value, the seconds of training of all its trials, and their number."""

    value: float
    seconds: float
    trials: int


def runs(folder: Path) -> list[Run]:
    """Reads the runs of a search's trials."""
    return [read_run(path.parent) for path in sorted(folder.glob("trial*/run.json"))]


def seconds(folder: Path) -> float:
    """Sums the training seconds of all epochs of a search."""
    return sum(epoch.seconds for run in runs(folder) for epoch in run.epochs)


def best(folder: Path) -> float:
    """Returns the metric of the best epoch of a search."""
    return max(run.best.value for run in runs(folder) if run.best)


def numbers(way: str, extent: Extent, folder: Path, limit: float) -> Iterator[int]:
    """Yields the numbers of trials to go on with: all of a population; else one more, until all
    have trained for `limit` seconds.
    """
    if way == "pbt":
        yield extent.members
        return
    trials = 0
    while trials == 0 or seconds(folder) < limit:
        trials += 1
        yield trials


def searched(
    way: str, seed: int, graphs: Path, folder: Path, extent: Extent, limit: float
) -> Found:
    """Searches in one way; what was searched already is kept."""
    file = folder.with_suffix(".yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump({"metric": METRIC, "space": SPACE, "seed": seed, **WAYS[way]}))
    given = [
        str(graphs), *SETTINGS, f"training.epochs={extent.epochs}", f"training.seed={seed}",
        f"data.validation={extent.validation}",
    ]  # fmt: skip
    trials = 0
    for trials in numbers(way, extent, folder, limit):
        run_search(plan_search(file, given, DEFAULT, folder, None, trials), trials, 1, 1, None)
    found = Found(best(folder), seconds(folder), trials)
    say(f"{folder.name}: {METRIC} {found.value:.5f}, {trials} trials, {found.seconds:.0f} s")
    return found


def entry(found: Sequence[Found]) -> dict[str, Any]:
    """Makes a method's row: over seeds, and of each."""
    values = [one.value for one in found]
    return {
        "mean": fmean(values),
        "deviation": stdev(values),
        "seconds": fmean(one.seconds for one in found),
        "trials": fmean(one.trials for one in found),
        "seeds": values,
    }


def table(rows: dict[str, dict[str, Any]]) -> Table:
    title = "Searches at equal total time"
    shown = Table("method", METRIC, "trials", "s", title=title, caption=machine()["cpu"])
    for way, name in TITLES.items():
        row = rows[way]
        value = f"{row['mean']:.5f} ± {row['deviation']:.5f}"
        shown.add_row(name, value, f"{row['trials']:.1f}", f"{row['seconds']:.0f}")
    return shown


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Makes the last line."""
    kept = ("mean", "deviation", "seconds")
    return {way: {key: rows[way][key] for key in kept} for way in TITLES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    add_options(parser, quick="two trials of two epochs, two seeds")
    arguments = parser.parse_args()
    results = Results("search", arguments)
    extent = QUICK if arguments.quick else WHOLE
    found: dict[str, list[Found]] = {way: [] for way in WAYS}
    for seed in extent.seeds:
        limit = 0.0
        for way in WAYS:  # the population first
            folder = arguments.out / f"{way}-{seed}"
            found[way].append(searched(way, seed, arguments.graphs, folder, extent, limit))
            limit = found["pbt"][-1].seconds
    rows = {way: entry(one) for way, one in found.items()}
    console.print(table(rows))
    results.write(summary(rows), methods=rows, space=SPACE, ways=WAYS, settings=SETTINGS)


if __name__ == "__main__":
    exit_on_bad_input("search_methods.py", main)
