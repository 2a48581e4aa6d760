"""Trainings side by side, where only variables of the environment differ."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.records.run_folder import read_run
from scripts.bench.choice_draw import quietly
from scripts.results import CHECKOUT, Results, add_options

EVENTS, EPOCHS, REPEATS = 3, 10, 3
Sides = Mapping[str, Mapping[str, str]]  # variables of the environment by side
Row = dict[str, Any]  # a case and what was found of each side


@dataclass(frozen=True)
class Case:
    """Describes a training on one rank by its events' particles and its model; more: settings."""

    particles: int
    hidden: int
    layers: int
    recompute: str
    sectors: int = 1
    more: tuple[str, ...] = ()

    @property
    def settings(self) -> list[str]:
        return [
            f"model.hidden={self.hidden}",
            f"model.layers={self.layers}",
            f"model.recompute={self.recompute}",
            f"training.epochs={EPOCHS}",
            "training.routing=stored",
            "data.validation=0",
            *self.more,
        ]


def make_data(case: Case, work: Path) -> Path:
    """Makes the events of a case; returns their folder."""
    made = work / f"{case.particles}"
    events, whole, cut = (made / name for name in ("events", "graphs", f"in-{case.sectors}"))
    if not made.exists():
        size = ["--particles", str(case.particles), "--seed", "1"]
        quietly(["bigtrk", "simulate", str(events), "--events", str(EVENTS), *size])
        quietly(["bigtrk", "build", str(events), str(whole)])
    if case.sectors == 1:
        return whole
    if not cut.exists():
        quietly(["partition", str(whole), str(cut), "--parts", str(case.sectors)])
    return cut


def train(case: Case, data: Path, environment: Mapping[str, str]) -> dict[str, float]:
    """Trains in a process of its own; returns the peaks of the first epoch and of all, in bytes,
    and the median seconds of steps after the first.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, str(CHECKOUT / "bigtrk" / "train.py"), *case.settings]
        command += [f"data.train=[{data}]", f"run.folder={run}"]
        subprocess.run(command, env={**environment}, check=True, stdout=subprocess.DEVNULL)
        record = read_run(run)
    peaks = [epoch.peak_memory_bytes or 0 for epoch in record.epochs]
    seconds = median(step.seconds for step in record.steps[1:])
    return {"first": peaks[0], "last": max(peaks), "seconds": seconds}


def alternate(case: Case, work: Path, sides: Sides) -> dict[str, dict[str, float]]:
    """Trains all sides of a case in turn, REPEATS times; returns the medians by side."""
    data = make_data(case, work)
    ours = {name for variables in sides.values() for name in variables}
    environment = {name: text for name, text in os.environ.items() if name not in ours}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(REPEATS):
        for side, variables in sides.items():
            found[side].append(train(case, data, {**environment, **variables}))
    return {side: _medians(runs) for side, runs in found.items()}


def _medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    return {name: median(one[name] for one in runs) for name in runs[0]}


@dataclass(frozen=True)
class Comparison:
    """Holds what a script compares, and how it tells all rows in a line, and each of them."""

    name: str
    cases: Sequence[Case]
    sides: Sides
    summary: Callable[[Sequence[Row]], dict[str, float]]
    told: Callable[[Row], str]

    def main(self, description: str) -> None:
        """Measures all cases as the command line says."""
        parser = argparse.ArgumentParser(description=description)
        add_options(parser)
        arguments = parser.parse_args()
        exit_on_bad_input(f"{self.name}.py", lambda: self._measure(arguments))

    def _measure(self, arguments: argparse.Namespace) -> None:
        results, rows = Results(self.name, arguments), []
        with tempfile.TemporaryDirectory(prefix="bigtrk-sides-") as work:
            for case in follow(self.cases, len(self.cases), "trainings"):
                rows.append({**asdict(case), **alternate(case, Path(work), self.sides)})
                say(self.told(rows[-1]))
        results.write(self.summary(rows), cases=rows)
