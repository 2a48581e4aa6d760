"""Measures how well `bigtrk plan` predicts trainings on a GPU that it was not fitted to.

    BIGTRK_TESTDATA=... python scripts/gpu/plan_accuracy_gpu.py [--work FOLDER] [--seed N]
        [--machine FILE] [--output FILE] [--publish]

As plan_accuracy.py, whose terms it shares: it makes the events, calibrates this machine, draws runs
by the seed, writes what is predicted for them, prints the SHA-256 of that file, and only then
trains them, once, on one GPU. All are trained in this process by `bigtrk.train`; memory is what a
training adds to that of the process before it, which has the workspaces of cuBLAS.
"""

import argparse
import gc
import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import bigtrk
from bigtrk.console import console, exit_on_bad_input, follow, say
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import A100
from bigtrk.disk.files import read_json, write_json
from bigtrk.errors import InputError
from bigtrk.planning.calibration.calibrate import calibrate
from bigtrk.planning.prediction import Predicted
from bigtrk.records.run_folder import read_run
from bigtrk.training.costs import load_constants, make_cost
from scripts.bench.plan_accuracy import Compared, exceeded, predictions, summary, table
from scripts.bench.plan_draws import EVENTS, Events, Job, any_job, prepare
from scripts.results import Results, add_options

# Steps are short: few events are read again and again. The largest are trained whole: METIS would
# take as long as all trainings.
_LARGE = 1_000_000
KINDS = tuple(
    replace(events, copies=4, runs=6)
    if events.edges < _LARGE
    else replace(events, copies=2, runs=6, cut=False)
    for events in EVENTS
)
_STEPS = 12  # of a training, about
_BYTES = 60e9
_OFFLOADS = (False, False, True)  # where edges may be kept on the host


def draw(seed: int) -> list[Job]:
    """Draws the runs of a seed: the same on any machine."""
    generator = random.Random(seed)
    jobs: list[Job] = []
    for events in KINDS:
        drawn: dict[Job, None] = {}
        while len(drawn) < events.runs:
            job = _on_one_rank(any_job(events, generator), generator)
            if _feasible(job, events):
                drawn[job] = None
        jobs += drawn
    return jobs


def _on_one_rank(job: Job, generator: random.Random) -> Job:
    settings = job.settings
    whole = not any(one.startswith("sampling.") for one in settings)
    may = {"model.name=interaction", "model.recompute=chunk"} <= {*settings} and whole
    if may and generator.choice(_OFFLOADS):
        settings = tuple(one.replace("recompute=chunk", "recompute=offload") for one in settings)
    epochs = -(-_STEPS // job.steps)
    return replace(job, ranks=1, settings=settings, memory_gib=None, epochs=epochs)


def _feasible(job: Job, events: Events) -> bool:
    """Says whether there are such events, of which a step leaves some, and a GPU has room."""
    cut = job.sectors or any(one.startswith("sampling.") for one in job.settings)
    per_step = job.configuration(Path("work")).training.events_per_step
    fewer = events.cut or not cut
    return fewer and 2 * per_step <= events.copies and _has_room(job, events, per_step)


def _has_room(job: Job, events: Events, per_step: int) -> bool:
    cost = make_cost(job.configuration(Path("work")), 1, 1, A100)
    return per_step * cost.memory(EventSize(events.nodes, events.edges), 1, 1).total < _BYTES


def compare(
    jobs: Sequence[Job], work: Path, found: Sequence[dict[str, Any]], process: int
) -> list[Compared]:
    """Trains what is not trained yet, and compares. process: the bytes that a process has."""
    return [
        Compared(
            job,
            Predicted(**row["fitted"]),
            Predicted(**row["default"]),
            (trained_once(job, work, str(i), process),),
        )
        for i, (job, row) in enumerate(follow([*zip(jobs, found, strict=True)], len(jobs), "runs"))
    ]


def trained_once(job: Job, work: Path, name: str, process: int) -> Predicted:
    """Returns what a job took, trained before if that is not known."""
    path = work / "measured" / f"{name}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_json(path, asdict(_trained(job, work, work / "runs" / name, process)))
    return Predicted(**read_json(path))


def _trained(job: Job, work: Path, run: Path, process: int) -> Predicted:
    shutil.rmtree(run, ignore_errors=True)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    bigtrk.train(bigtrk.configure(*job.arguments(work), f"run.folder={run}"))
    record = read_run(run)
    shutil.rmtree(run)
    peak = max(epoch.peak_memory_bytes or 0 for epoch in record.epochs)
    seconds = median(step.seconds for step in record.steps[1:])
    return Predicted(float(peak - before + process), seconds)


def measure(arguments: argparse.Namespace) -> None:
    results = Results("plan_accuracy_gpu", arguments)
    if not torch.cuda.is_available():
        raise InputError("torch sees no GPU here, and nothing is measured without one")
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    jobs = draw(arguments.seed)
    prepare(work, Path(os.environ.get("BIGTRK_TESTDATA", "")), KINDS)
    path = arguments.machine or work / "calibration.json"
    constants = load_constants(path) if path.exists() else calibrate(path)
    predicted = predictions(jobs, work, arguments.seed, constants)
    digest = hashlib.sha256((work / "predictions.json").read_bytes()).hexdigest()
    say(f"{work}/predictions.json: SHA-256 {digest}")
    _trained(jobs[0], work, work / "runs" / "warm", 0)  # makes the workspaces of cuBLAS
    found = compare(jobs, work, predicted, constants.private_bytes)
    console.print(table(found))
    facts = {"seed": arguments.seed, "predictions_sha256": digest}
    facts |= {"exceeded": exceeded(found)}
    facts |= {"constants": json.loads(constants.model_dump_json())}
    results.write(summary(found), jobs=[one.row() for one in found], **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    parser.add_argument("--seed", type=int, default=18, help="of the runs that are drawn")
    parser.add_argument("--machine", type=Path, help="a calibration; made by default")
    add_options(parser)
    arguments = parser.parse_args()
    exit_on_bad_input("plan_accuracy_gpu.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
