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
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bigtrk
from bigtrk.console import console, exit_on_bad_input, follow
from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machine_constants import A100
from bigtrk.errors import InputError
from bigtrk.planning.prediction import Predicted
from bigtrk.training.costs import make_cost
from scripts.bench.plan_accuracy import (
    Compared,
    arguments_of,
    exceeded,
    measured,
    predict,
    summary,
    table,
    trained_once,
)
from scripts.bench.plan_draws import EVENTS, Events, Job, any_job, prepare
from scripts.results import Results

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
            (trained_once(work, str(i), partial(trained, job, work, process)),),
        )
        for i, (job, row) in enumerate(follow([*zip(jobs, found, strict=True)], len(jobs), "runs"))
    ]


def trained(job: Job, work: Path, process: int, run: Path) -> Predicted:
    """Trains `job` as the run `run`; process: the bytes that a process has without it."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    bigtrk.train(bigtrk.configure(*job.arguments(work), f"run.folder={run}"))
    found = measured(run)
    return replace(found, peak_bytes=found.peak_bytes - before + process)


def measure(arguments: argparse.Namespace) -> None:
    results = Results("plan_accuracy_gpu", arguments)
    if not torch.cuda.is_available():
        raise InputError("torch sees no GPU here, and nothing is measured without one")
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-plan-"))
    work.mkdir(parents=True, exist_ok=True)
    jobs = draw(arguments.seed)
    prepare(work, Path(os.environ.get("BIGTRK_TESTDATA", "")), KINDS)
    predicted, facts = predict(jobs, work, arguments)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        trained(jobs[0], work, 0, Path(folder) / "run")  # makes the workspaces of cuBLAS
    found = compare(jobs, work, predicted, facts["constants"]["private_bytes"])
    console.print(table(found))
    facts |= {"exceeded": exceeded(found)}
    results.write(summary(found), jobs=[one.row() for one in found], **facts)


def main() -> None:
    arguments = arguments_of(__doc__)
    exit_on_bad_input("plan_accuracy_gpu.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
