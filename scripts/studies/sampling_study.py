"""Compares whole events, ShaDow, sectors and wedges, each trained for the same time.

    python -m scripts.studies.sampling_study GRAPHS SECTORS [CONFIG.yaml | key.sub=value]...
        [--minutes M] [--ranks R] [--out FOLDER] [--name NAME] [--output FILE] [--publish]

SECTORS are those of GRAPHS (`python -m partition`). Runs go to FOLDER, where a study that was
interrupted continues. Prints edge metrics at equal time and at equal epochs of training;
validation does not count in the time. The last line is one JSON object of metrics at equal time.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bigtrk.config import load_settings
from bigtrk.console import exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import read_manifest
from bigtrk.planning.command import split_arguments
from bigtrk.records.metrics import EpochRecord, MeanEdgeMetrics
from bigtrk.records.run_folder import Run, read_run
from bigtrk.shipped import DEFAULT, TRAIN
from bigtrk.studies.launch import torchrun_command, torchrun_environment, train_logged
from bigtrk.training.run_folder import WEIGHTS, remove_run
from bigtrk.training.settings import Configuration
from scripts.results import Results, add_options

# Name, kind of data folder, overrides.
METHODS = (
    ("full graph", "graphs", ()),
    ("ShaDow", "graphs", ("sampling.method=shadow",)),
    ("naive sectors", "sectors", ("sampling.method=sectors", "data.sectors=naive")),
    ("sectors with halo", "sectors", ("sampling.method=sectors", "data.sectors=halo")),
    ("wedges", "graphs", ("sampling.method=wedges",)),
)
SHOWN = ("auc", "efficiency", "purity")
VALIDATIONS = 12
ENDLESS = 100_000  # epochs: the time limit ends a run


@dataclass(frozen=True)
class Scored:
    """Validation after some seconds of training, and after whole epochs at their ends."""

    seconds: float
    epochs: int | None
    metrics: MeanEdgeMetrics


@dataclass(frozen=True)
class Method:
    """A way to train, and its run."""

    name: str
    run: Run

    @property
    def curve(self) -> list[Scored]:
        """Lists the validations by time."""
        ends = accumulate(epoch.seconds for epoch in self.run.epochs)
        whole = [
            Scored(end, epoch.number if _is_whole(epoch) else None, epoch.validation)
            for end, epoch in zip(ends, self.run.epochs, strict=True)
            if epoch.validation
        ]
        between = [
            Scored(found.seconds, None, found.validation)
            for found in self.run.validations
            if found.validation
        ]
        return sorted([*whole, *between], key=lambda scored: scored.seconds)

    def at(self, seconds: float) -> Scored | None:
        """Returns the last validation by then."""
        return next((s for s in reversed(self.curve) if s.seconds <= seconds), None)

    def after(self, epochs: int) -> Scored | None:
        return next((s for s in self.curve if s.epochs == epochs), None)

    @property
    def work(self) -> float | None:
        """Returns the edges of an epoch's steps over those of the events, each once."""
        first, edges = self.run.epochs[:1], self.run.record.data.edges
        if not first or not edges or not first[0].steps:
            return None
        done = first[0].steps / (first[0].planned_steps or first[0].steps)
        return first[0].edges / done / edges

    @property
    def whole_epochs(self) -> int:
        """Counts the epochs that the time limit did not cut short."""
        return sum(map(_is_whole, self.run.epochs))


def _is_whole(epoch: EpochRecord) -> bool:
    return epoch.steps + (epoch.spikes or 0) == epoch.planned_steps


def train(run: Path, settings: Path, overrides: Sequence[str], ranks: int) -> None:
    """Trains a method unless it is trained; raises InputError if the training failed, or the folder
    holds a run of other settings.
    """
    wanted = load_settings(Configuration, settings, overrides)
    if (run / WEIGHTS).exists():
        if read_run(run).record.config != wanted.model_dump(mode="json"):
            raise InputError(f"{run}: has other settings or minutes; choose another --out")
        return
    if run.exists():
        remove_run(run)
    command = torchrun_command(ranks, TRAIN, [str(settings), *overrides])
    train_logged(command, run / "log.txt", torchrun_environment(ranks))


def compare(methods: Sequence[Method]) -> dict[str, Any]:
    """Compares at the time of the shortest run and at the epochs that all have finished."""
    seconds = min(sum(epoch.seconds for epoch in method.run.epochs) for method in methods)
    epochs = min(method.whole_epochs for method in methods)
    return {
        "seconds": seconds,
        "epochs": epochs,
        "methods": {
            method.name: {
                "epochs": len(method.run.epochs),
                "work": method.work,
                "at_equal_time": _metrics(method.at(seconds)),
                "at_equal_epochs": _metrics(method.after(epochs)),
                "curve": [{"seconds": s.seconds, **_shown(s.metrics)} for s in method.curve],
            }
            for method in methods
        },
    }


def _metrics(scored: Scored | None) -> dict[str, Any] | None:
    return scored.metrics.model_dump(mode="json") if scored else None


def _shown(metrics: MeanEdgeMetrics) -> dict[str, float | None]:
    return {name: getattr(metrics, name) for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=5, help="of training, for each method")
    parser.add_argument("--ranks", type=int, default=1, help="of each run, on this host")
    parser.add_argument("--out", type=Path, default=Path("study"), help="folder of the runs")
    parser.add_argument("--name", default="sampling_study", help="of the result file")
    add_options(parser)
    arguments, given = parser.parse_known_args()
    results = Results(arguments.name, arguments)
    settings, own, folders = split_arguments(given, DEFAULT)
    data = {read_manifest(folder)[0]: folder for folder in folders}
    if sorted(data) != ["graphs", "sectors"] or len(folders) != 2:
        raise InputError("name two data folders: graphs, and their sectors")
    methods = []
    for name, kind, way in METHODS:
        say(f"{name}: {arguments.minutes:g} minutes of training")
        run = arguments.out / name.replace(" ", "-")
        overrides = [
            *own,
            f"data.train={json.dumps([str(data[kind])])}",
            f"training.minutes={arguments.minutes}",
            f"training.epochs={ENDLESS}",
            f"training.validate_minutes={arguments.minutes / VALIDATIONS}",
            f"run.folder={run}",
            *way,
        ]
        train(run, settings, overrides, arguments.ranks)
        methods.append(Method(name, read_run(run)))
    found = compare(methods)
    at_equal_time = {
        name: {key: (method["at_equal_time"] or {}).get(key) for key in SHOWN}
        for name, method in found["methods"].items()
    }
    say(f"after {found['seconds']:.0f} s of training:")
    for name, metrics in at_equal_time.items():
        shown = (f"{key} {math.nan if x is None else 100 * x:.2f} %" for key, x in metrics.items())
        say(f"{name:18} {', '.join(shown)}")
    results.write(at_equal_time, arguments=given, **found)


if __name__ == "__main__":
    exit_on_bad_input("sampling_study.py", main)
