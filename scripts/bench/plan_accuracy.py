"""Measures how well `bigtrk plan` predicts runs that it was not fitted to.

    BIGTRK_TESTDATA=... python scripts/bench/plan_accuracy.py [--work FOLDER] [--seed N]
        [--machine FILE] [--output FILE] [--publish]

It makes the events, calibrates this machine (--machine: a calibration to use instead), draws runs
by the seed, writes what is predicted for them to FOLDER/predictions.json, prints the SHA-256 of
that file, and only then trains them. What FOLDER has of all this is kept: run it again to go on.

A training has as many epochs as take 8 s, by the constants of a machine that is not calibrated.
Its time is the median of the seconds of its steps after the first; its memory is the peak
of its largest rank. Each run is trained twice: all of them, and then all of them again; what it
took is the mean of both. `repeated` tells how far the best of predictions could be off on this
host: it has the errors of time of predicting each second training by the first.

The last line is one JSON object: the median and the 90th percentile of the absolute relative
errors, and Kendall's tau of predicted against measured times over all pairs of runs on the same
events. Run it on an idle machine; only memory can be measured on another.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, follow, say
from bigtrk.cost.machine_constants import MachineConstants, default_machine
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError
from bigtrk.planning.calibration.calibrate import calibrate
from bigtrk.planning.prediction import Predicted, predict_run
from bigtrk.records.run_folder import read_run
from bigtrk.training.costs import load_constants
from scripts.bench.plan_draws import CHECKOUT, Job, draw, prepare
from scripts.on_ranks import torchrun
from scripts.results import Results, add_options

Seconds = Callable[["Compared"], float]


@dataclass(frozen=True)
class Compared:
    """A job's measured memory and time, of each time that it was `trained`, beside the predictions
    of the calibration (`fitted`) and of the defaults.
    """

    job: Job
    fitted: Predicted
    default: Predicted
    trained: tuple[Predicted, ...]

    @property
    def measured(self) -> Predicted:
        """Returns the mean of its trainings."""
        return Predicted(
            mean(one.peak_bytes for one in self.trained),
            mean(one.step_seconds for one in self.trained),
        )

    def row(self) -> dict[str, Any]:
        """Returns a row of the result file."""
        figures = {"name": self.job.name, **asdict(self.job), "recorded": asdict(self.measured)}
        figures["trained"] = [asdict(one) for one in self.trained]
        ours, theirs = (self._figures(found) for found in (self.fitted, self.default))
        return {**figures, **ours, "uncalibrated": theirs}

    def _figures(self, found: Predicted) -> dict[str, float]:
        memory, time = self.errors(found)
        return {**asdict(found), "memory_error": memory, "time_error": time}

    def errors(self, found: Predicted) -> tuple[float, float]:
        """Returns the relative errors of predicted memory and time."""
        return (
            found.peak_bytes / self.measured.peak_bytes - 1,
            found.step_seconds / self.measured.step_seconds - 1,
        )


def once(path: Path, make: Callable[[], Any]) -> Any:
    """Returns what the JSON file `path` has, made before if it is not there."""
    if not path.exists():
        write_json(path, make())
    return read_json(path)


def predictions(
    jobs: Sequence[Job], work: Path, seed: int, constants: MachineConstants
) -> list[dict[str, Any]]:
    """Predicts all jobs from the calibration and from the defaults, before any of them runs."""
    default = default_machine(constants.accelerator)

    def predict(job: Job, machine: MachineConstants) -> dict[str, float]:
        return asdict(predict_run(job.configuration(work), job.ranks, job.ranks, machine))

    def make() -> dict[str, Any]:
        rows = [
            {"name": job.name, "fitted": predict(job, constants), "default": predict(job, default)}
            for job in follow(jobs, len(jobs), "predictions")
        ]
        return {"seed": seed, "machine": constants.name, "runs": rows}

    found = once(work / "predictions.json", make)
    names = [row["name"] for row in found["runs"]]
    if names != [job.name for job in jobs]:
        raise InputError(f"{work}/predictions.json: is of other runs; choose another --work")
    rows: list[dict[str, Any]] = found["runs"]
    return rows


def train(job: Job, work: Path, run: Path) -> None:
    """Trains `job` as the run `run`."""
    settings = [*job.arguments(work), f"run.folder={run}"]
    torchrun(job.ranks, CHECKOUT / "bigtrk" / "train.py", *settings, quiet=True)


def measured(run: Path) -> Predicted:
    """Reads the memory and the median step of a run."""
    record = read_run(run)
    seconds = [step.seconds for step in record.steps[1:]]
    peak = max(epoch.peak_memory_bytes or 0 for epoch in record.epochs)
    return Predicted(float(peak), median(seconds))


def compare(jobs: Sequence[Job], work: Path, found: Sequence[dict[str, Any]]) -> list[Compared]:
    """Trains what is not trained yet, and compares."""

    def trained(job: Job, run: Path) -> Predicted:
        train(job, work, run)
        return measured(run)

    first, second = (
        [
            trained_once(work, f"{turn}-{i}", partial(trained, job))
            for i, job in enumerate(follow(jobs, len(jobs), f"runs, {turn} time"))
        ]
        for turn in ("first", "second")
    )
    return [
        Compared(job, Predicted(**row["fitted"]), Predicted(**row["default"]), both)
        for job, row, both in zip(jobs, found, zip(first, second, strict=True), strict=True)
    ]


def trained_once(work: Path, name: str, train: Callable[[Path], Predicted]) -> Predicted:
    """Returns what a job took, which `train` tells of it as a run if that is not known yet."""
    run, path = work / "runs" / name, work / "measured" / f"{name}.json"
    if not path.exists():
        shutil.rmtree(run, ignore_errors=True)
        path.parent.mkdir(exist_ok=True)
        write_json(path, asdict(train(run)))
        shutil.rmtree(run)
    return Predicted(**read_json(path))


def _predicted(one: Compared) -> float:
    return one.fitted.step_seconds


def _taken(one: Compared) -> float:
    return one.measured.step_seconds


def tau(found: Sequence[Compared], by: Seconds = _predicted, of: Seconds = _taken) -> float:
    """Returns Kendall's tau of the order of predicted times (`by`) and of those taken (`of`), over
    all pairs of runs on the same events.
    """
    signs = [
        np.sign(by(a) - by(b)) * np.sign(of(a) - of(b))
        for a, b in itertools.combinations(found, 2)
        if a.job.events == b.job.events
    ]
    return float(np.mean(signs))


def summary(found: Sequence[Compared]) -> dict[str, float]:
    """Makes the last line."""
    errors = np.abs([one.errors(one.fitted) for one in found])
    middle, tenth = np.median(errors, axis=0), np.quantile(errors, 0.9, axis=0)
    figures = {"memory_median": middle[0], "memory_p90": tenth[0]}
    figures |= {"time_median": middle[1], "time_p90": tenth[1]}
    return {"runs": len(found), **{k: float(v) for k, v in figures.items()}, "tau": tau(found)}


def repeated(found: Sequence[Compared]) -> dict[str, float]:
    """Returns what the last line would say of times if each second training were predicted to take
    as long as the first.
    """
    seconds = np.array([[took.step_seconds for took in one.trained] for one in found])
    errors = np.abs(seconds[:, 0] / seconds[:, 1] - 1)
    figures = {"time_median": np.median(errors), "time_p90": np.quantile(errors, 0.9)}
    by, of = (lambda one, i=i: one.trained[i].step_seconds for i in range(2))
    order = tau(found, by, of)
    return {**{name: float(value) for name, value in figures.items()}, "tau": order}


def exceeded(found: Sequence[Compared]) -> dict[str, float]:
    """Returns how many times what the defaults predict was taken at most: what MachineConstants has
    of them.
    """
    memory, time = np.array([one.errors(one.default) for one in found]).T
    return {"memory": float(1 / (1 + memory.min())), "seconds": float(1 / (1 + time.min()))}


def table(found: Sequence[Compared]) -> Table:
    """Lists the errors of each run."""
    columns = ("run", "step s", "memory", "time", "memory, uncalibrated", "time, uncalibrated")
    shown = Table(*columns, title="Predicted, relative to recorded")
    for one in found:
        errors = [error for by in (one.fitted, one.default) for error in one.errors(by)]
        seconds = f"{one.measured.step_seconds:.3f}"
        shown.add_row(one.job.name, seconds, *(f"{error:+.0%}" for error in errors))
    return shown


def measure(arguments: argparse.Namespace) -> None:
    results = Results("plan_accuracy", arguments)
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    jobs = draw(arguments.seed)
    prepare(work, Path(os.environ.get("BIGTRK_TESTDATA", "")))
    load = os.getloadavg()[0]
    predicted, facts = predict(jobs, work, arguments)
    found = compare(jobs, work, predicted)
    console.print(table(found))
    facts |= {"load": load, "repeated": repeated(found), "exceeded": exceeded(found)}
    results.write(summary(found), jobs=[one.row() for one in found], **facts)


def predict(
    jobs: Sequence[Job], work: Path, arguments: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Calibrates the machine, if no calibration is given, predicts all jobs, and prints the SHA-256
    of the file; returns the predictions, and what a result file says of them.
    """
    path = arguments.machine or work / "calibration.json"
    constants = load_constants(path) if path.exists() else calibrate(path)
    predicted = predictions(jobs, work, arguments.seed, constants)
    digest = hashlib.sha256((work / "predictions.json").read_bytes()).hexdigest()
    say(f"{work}/predictions.json: SHA-256 {digest}")
    facts = {"seed": arguments.seed, "predictions_sha256": digest}
    return predicted, {**facts, "constants": json.loads(constants.model_dump_json())}


def arguments_of(description: str | None) -> argparse.Namespace:
    """Reads the command line of a program described so."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    parser.add_argument("--seed", type=int, default=18, help="of the runs that are drawn")
    parser.add_argument("--machine", type=Path, help="a calibration; made by default")
    add_options(parser)
    return parser.parse_args()


def main() -> None:
    arguments = arguments_of(__doc__)
    exit_on_bad_input("plan_accuracy.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
