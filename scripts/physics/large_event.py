"""Trains on one event of ColliderML's size, cut into sectors, and measures memory and time.

    python scripts/physics/large_event.py [--work FOLDER] [--particles N] [--pt-min GEV]
        [KEY=VALUE...] [--output FILE] [--quick | --publish]

It simulates an event in the Open Data Detector, builds its graph by the shipped windows (about 5 M
edges for 250,000 hits), or by windows learnt from it, cuts that in four by METIS and trains three
steps under torchrun on two ranks, each with two of the sectors. Every stage is a
process, or a rank, of its own, by the programs as a user runs them. KEY=VALUE are
further settings of the training. The last line is one JSON object: hits, edges, the loss by step,
seconds by stage and of a step, and the largest memory of each process in GiB. The exit status is 1
if the ranks together took more than 20 GiB.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.disk.files import read_json
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.records.run_folder import read_run
from scripts.on_ranks import torchrun
from scripts.results import CHECKOUT, Results, add_options

RECORDING = CHECKOUT / "scripts/large_events/record_process.py"
PARTICLES, QUICK = 24_700, 400  # a little more than 250,000 hits, and 4,000
SECTORS, RANKS, STEPS = 4, 2, 3
LIMIT = 20.0  # GiB, of all ranks
GIB = 2**30
SETTINGS = (
    "data.validation=0",
    f"training.epochs={STEPS}",  # of one event each
    "training.routing=stored",
    "model.hidden=64",
    "model.layers=8",
    "model.precision=bf16",
)


def commands(work: Path, particles: int, pt_min: float | None) -> dict[str, list[str]]:
    """Lists the commands of bigtrk that come before the training, by stage."""
    events, graphs, sectors = (str(work / name) for name in ("events", "graphs", "sectors"))
    size = ["--events", "1", "--particles", str(particles)]
    windows = [] if pt_min is None else ["--learn-windows", "--pt-min", str(pt_min)]
    return {
        "simulate": ["simulate", events, *size, "--detectors", "odd"],
        "build": ["build", events, graphs, *windows],
        "partition": ["partition", graphs, sectors, "--parts", str(SECTORS)],
    }


def measured(name: str, command: Sequence[str], work: Path, ranks: int = 1) -> list[dict[str, Any]]:
    """Runs a stage; returns the seconds and bytes that each of its ranks took. Raises
    CalledProcessError if it failed.
    """
    say(f"$ bigtrk {' '.join(command)}", style="bold")
    record = work / "records" / name
    if ranks > 1:
        torchrun(ranks, RECORDING, str(record), *command)
    else:
        subprocess.run([sys.executable, RECORDING, record, *command], check=True)
    return [read_json(record / f"{rank}.json") for rank in range(ranks)]


def train_on(work: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Trains the steps on all ranks; returns what each rank took, and the records of the steps."""
    where = (f"data.train=[{work}/sectors]", f"run.folder={work}/run")
    took = measured("train", ["train", *where, *SETTINGS, *settings], work, RANKS)
    steps = read_run(work / "run").steps
    return {"ranks": took, "steps": [step.model_dump(mode="json") for step in steps]}


def found_in(work: Path, particles: int, pt_min: float | None, settings: list[str]) -> Any:
    """Runs all stages in the folder `work`; returns what they took and made."""
    before = commands(work, particles, pt_min)
    stages = {name: measured(name, command, work)[0] for name, command in before.items()}
    [graph] = GraphFolder(work / "graphs").manifest["events"].values()
    return {"graph": graph, "stages": stages, **train_on(work, settings)}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Makes the last line."""
    stages, ranks, steps = found["stages"], found["ranks"], found["steps"]
    took = {name: stage["seconds"] for name, stage in stages.items()}
    held = {name: stage["bytes"] / GIB for name, stage in stages.items()}
    return {
        "hits": found["graph"]["nodes"],
        "edges": found["graph"]["edges"],
        "target_efficiency": found["graph"]["target_efficiency"],
        "loss": {str(step["step"]): step["loss"] for step in steps},
        "seconds": {
            **took,
            "train": max(rank["seconds"] for rank in ranks),
            "step": median(step["seconds"] for step in steps),
        },
        "gib": {**held, **{f"rank {i}": rank["bytes"] / GIB for i, rank in enumerate(ranks)}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of the training")
    parser.add_argument("--work", type=Path, help="a new folder to keep everything in")
    parser.add_argument("--particles", type=int, default=PARTICLES)
    parser.add_argument(
        "--pt-min", type=float, help="learn windows from the event, of particles above it (GeV)"
    )
    add_options(parser, quick=f"{QUICK} particles")
    arguments = parser.parse_intermixed_args()
    results = Results("large_event", arguments)
    particles = QUICK if arguments.quick else arguments.particles
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or Path(folder)).resolve()
        found = found_in(work, particles, arguments.pt_min, arguments.settings)
    results.write(summary(found), **found, settings=[*SETTINGS, *arguments.settings])
    raise SystemExit(int(sum(rank["bytes"] for rank in found["ranks"]) > LIMIT * GIB))


if __name__ == "__main__":
    exit_on_bad_input("large_event.py", main)
