"""Measures how well `bigtrk plan` predicts runs that it was not fitted to.

    BIGTRK_TESTDATA=... python scripts/bench/plan_accuracy.py [--work FOLDER] [--repeats 3]
        [--output FILE] [--publish]

It calibrates this machine, then trains event 1000 and the HEPTrkX graphs in several ways and with
several engines, the jobs in turn and `--repeats` times over, and compares the medians with what is
predicted from the calibration and from the defaults of a machine that is not calibrated. The last
line is one JSON object with the largest error of `memory` and of `time`, and, as `exceeded`, how
many times what the defaults predict was taken at most: what MachineConstants has of them. Run it on
an idle machine; only memory can be measured on another.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, follow
from bigtrk.cost.machine_constants import A100, CPU, MachineConstants
from bigtrk.errors import InputError
from bigtrk.planning.calibration import calibrate
from bigtrk.planning.check import Checked, check
from scripts.bench.on_ranks import torchrun
from scripts.results import Results, add_options

CHECKOUT = Path(__file__).parents[2]
# Folders that data are prepared in, by name.
FOLDERS = {
    "event 1000": "whole",
    "event 1000 in sectors": "sectors",
    "80 HEPTrkX graphs": "heptrkx",
}
DEEPSPEED, FSDP2 = "engine.name=deepspeed", "engine.name=fsdp2"
ZERO3 = (DEEPSPEED, "engine.ds_config=zero3")


@dataclass(frozen=True)
class Job:
    """A training run: its data, its number of ranks, its model and its settings."""

    data: str
    ranks: int
    hidden: int
    layers: int
    settings: tuple[str, ...] = ()
    epochs: int = 4

    @property
    def name(self) -> str:
        model = f"hidden {self.hidden}, {self.layers} layers"
        return ", ".join([f"{self.data} on {self.ranks} rank(s)", model, *self.settings])


# Settings of a wide model, whose weights are much of its memory.
FEW = ("data.events=4", "training.events_per_step=4")
JOBS = (
    Job("event 1000", 1, 32, 4),
    Job("event 1000", 1, 64, 3, ("model.recompute=none",)),
    Job("event 1000", 1, 64, 4, ("model.precision=bf16",)),
    Job("event 1000 in sectors", 2, 64, 4),
    Job("event 1000 in sectors", 2, 32, 8, (DEEPSPEED,)),
    Job("event 1000 in sectors", 2, 32, 4, ZERO3),
    Job("event 1000 in sectors", 4, 32, 4),
    Job("event 1000 in sectors", 4, 32, 4, (DEEPSPEED,)),
    Job("event 1000 in sectors", 4, 32, 4, ZERO3),
    Job("event 1000 in sectors", 4, 32, 4, (FSDP2,)),
    Job("80 HEPTrkX graphs", 2, 64, 8, ("training.events_per_step=4",), epochs=2),
    Job("80 HEPTrkX graphs", 3, 64, 4, ("training.events_per_step=3", *ZERO3), epochs=2),
    *(
        Job("80 HEPTrkX graphs", ranks, 512, 4, (*FEW, *engine), epochs=2)
        for ranks in (1, 2, 3, 4)
        for engine in ((), (DEEPSPEED,), ZERO3, (FSDP2,))
    ),
)


def prepare(work: Path, testdata: Path) -> None:
    """Makes graphs and sectors under `work`, once."""
    data = testdata / "data"
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; set BIGTRK_TESTDATA to the folder that holds it")
    build = [sys.executable, "-m", "bigtrk", "build"]
    quietly([*build, str(data / "trackml_event1000"), str(work / "whole")])
    heptrkx = [str(data / "heptrkx_graphs"), str(work / "heptrkx")]
    quietly([*build, "--from", "heptrkx", *heptrkx])
    cut = [sys.executable, "-m", "partition", str(work / "whole"), str(work / "sectors")]
    quietly([*cut, "--parts", "4"])


def quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=CHECKOUT)


def train(job: Job, work: Path, run: Path) -> None:
    """Trains `job` as the run `run`."""
    shutil.rmtree(run, ignore_errors=True)
    data = work / FOLDERS[job.data]
    settings = [f"data.train=[{data}]", "data.validation=0", "training.routing=stored"]
    settings += [f"model.hidden={job.hidden}", f"model.layers={job.layers}", *job.settings]
    settings += [f"training.epochs={job.epochs}", f"run.folder={run}"]
    torchrun(job.ranks, CHECKOUT / "bigtrk" / "train.py", *settings, quiet=True)


def middle(checks: list[Checked]) -> Checked:
    """Returns the prediction beside the medians of what was recorded."""
    return Checked(
        run=checks[0].run,
        peak_bytes=checks[0].peak_bytes,
        recorded_peak_bytes=median(c.recorded_peak_bytes for c in checks),
        batch_seconds=checks[0].batch_seconds,
        recorded_batch_seconds=median(c.recorded_batch_seconds for c in checks),
    )


@dataclass(frozen=True)
class Compared:
    """A job's records beside the predictions of the calibration and of the defaults."""

    job: Job
    fitted: Checked
    default: Checked

    def row(self) -> dict[str, Any]:
        figures = {"name": self.job.name, **asdict(self.job), **_figures(self.fitted)}
        return {**figures, "uncalibrated": _figures(self.default)}


def compare(work: Path, repeats: int, constants: MachineConstants) -> list[Compared]:
    """Compares all jobs, in turn, so that a change of the machine's load meets all of them."""
    rounds = [(job, i) for i in range(repeats) for job in JOBS]
    runs: dict[Job, list[Path]] = {job: [] for job in JOBS}
    for job, i in follow(rounds, len(rounds), "jobs"):
        runs[job].append(work / "runs" / f"{JOBS.index(job)}-{i}")
        train(job, work, runs[job][-1])
    default = CPU if constants.shared else A100

    def predicted(job: Job, machine: MachineConstants) -> Checked:
        return middle([check(run, machine, None) for run in runs[job]])

    return [Compared(job, predicted(job, constants), predicted(job, default)) for job in JOBS]


def table(found: list[Compared]) -> Table:
    columns = ("run", "memory", "time", "memory, uncalibrated", "time, uncalibrated")
    shown = Table(*columns, title="Predicted, relative to recorded")
    for one in found:
        errors = [(c.memory_error, c.time_error) for c in (one.fitted, one.default)]
        shown.add_row(one.job.name, *(f"{error:+.0%}" for pair in errors for error in pair))
    return shown


def summary(found: list[Compared]) -> dict[str, Any]:
    """Makes the last line: the largest errors, and by how much the defaults were exceeded."""
    fitted, default = [one.fitted for one in found], [one.default for one in found]
    return {
        "memory": max(abs(checked.memory_error) for checked in fitted),
        "time": max(abs(checked.time_error) for checked in fitted),
        "exceeded": {
            "memory": max(1 / (1 + checked.memory_error) for checked in default),
            "seconds": max(1 / (1 + checked.time_error) for checked in default),
        },
    }


def measure(arguments: argparse.Namespace) -> None:
    results = Results("plan_accuracy", arguments)
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    prepare(work, Path(os.environ.get("BIGTRK_TESTDATA", "")))
    load = os.getloadavg()[0]
    constants = calibrate(work / "calibration.json")
    found = compare(work, arguments.repeats, constants)
    console.print(table(found))
    facts = {"repeats": arguments.repeats, "load": load}
    fitted = constants.model_dump(mode="json")
    results.write(summary(found), jobs=[one.row() for one in found], constants=fitted, **facts)


def _figures(checked: Checked) -> dict[str, Any]:
    figures = {name: value for name, value in asdict(checked).items() if name != "run"}
    return {**figures, "memory_error": checked.memory_error, "time_error": checked.time_error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    parser.add_argument("--repeats", type=int, default=3)
    add_options(parser)
    arguments = parser.parse_args()
    exit_on_bad_input("plan_accuracy.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
