"""Trains an event whole on one rank and in sectors on two, and compares losses.

    python scripts/parity/whole_and_sectors.py TRACKML_EVENT1000 [--work FOLDER] [--sectors 8]
        [--output FILE] [--quick | --publish]

The graph has the edges of particles above 0.3 GeV, 3 M for event 1000. In sectors it is trained
with `deepspeed --num_gpus 2 bigtrk/train.py` (ZeRO-1), several sectors on each rank; whole by a
single process. Both take three steps of the default network in float32. The last line is one JSON
object: edges, sectors, ranks and steps, the largest relative difference of a step's loss, which
comes after the updates of the steps before, and the peak memory of a rank in GiB. Exit status 1
where losses differ by more than 1e-5. Weights are not compared: AdamW's first updates are as large
as its rate however small a gradient is, so that rounding shows in them.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bigtrk.console import exit_on_bad_input, say
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.records.run_folder import Run, read_run
from bigtrk.training.run_folder import WEIGHTS
from scripts.rehearsals.compare_losses import largest_difference
from scripts.results import CHECKOUT, Results, add_options

RANKS, STEPS, TOLERANCE = 2, 3, 1e-5
SOFT = ("--learn-windows", "--pt-min", "0.3")
GIB = 2**30


def run(*command: str) -> None:
    """Runs a command of ours in the checkout.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    say(f"$ {' '.join(command)}", style="bold")
    program = Path(sys.executable).parent / command[0]
    subprocess.run([str(program), *command[1:]], check=True, cwd=CHECKOUT)


def trained(work: Path, events: Path, sectors: int, soft: bool) -> tuple[Run, Run]:
    """Trains the event of a folder whole and in sectors; what is there already is kept."""
    graphs, cut = work / "graphs", work / "sectors"
    run("bigtrk", "build", str(events), str(graphs), *(SOFT if soft else ()))
    run("python", "-m", "partition", str(graphs), str(cut), "--parts", str(sectors))
    both = (
        "data.validation=0",
        f"training.epochs={STEPS}",
        "model.precision=fp32",
        "training.routing=stored",
    )
    engine = "engine.name=deepspeed", "engine.ds_config=zero1"
    train, two = "bigtrk/train.py", ("deepspeed", "--quiet", "--num_gpus", str(RANKS))
    starts = {"whole": (("python",), graphs, ()), "in-sectors": (two, cut, engine)}
    for name, (launcher, data, own) in starts.items():
        if not (work / name / WEIGHTS).exists():
            folders = f"data.train=[{data}]", f"run.folder={work / name}"
            run(*launcher, train, *folders, *both, *own)
    whole, split = (read_run(work / name) for name in starts)
    return whole, split


def summary(edges: int, sectors: int, whole: Run, split: Run) -> dict[str, float]:
    """Makes the last line."""
    return {
        "edges": edges,
        "sectors": sectors,
        "ranks": split.record.world_size,
        "steps": len(split.steps),
        "max_relative_difference": largest_difference(whole, split),
        "whole_gib": peak_gib(whole),
        "in_sectors_gib": peak_gib(split),
    }


def peak_gib(run: Run) -> float:
    """Returns the peak memory of the rank with most."""
    return max(epoch.peak_memory_bytes for epoch in run.epochs) / GIB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("events", type=Path)
    parser.add_argument("--work", type=Path, help="a folder to keep graphs and runs in")
    parser.add_argument("--sectors", type=int, default=8)
    add_options(parser, quick="the graph of particles above 1 GeV, a tenth as large")
    arguments = parser.parse_args()
    results = Results("whole_and_sectors", arguments)
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or Path(folder)).resolve()
        events = arguments.events.resolve()
        whole, split = trained(work, events, arguments.sectors, soft=not arguments.quick)
        [graph] = GraphFolder(work / "graphs").manifest["events"].values()
        found = summary(graph["edges"], arguments.sectors, whole, split)
    results.write(
        found, routes=[step.routes for step in split.steps], step_seconds=seconds_of(whole, split)
    )
    raise SystemExit(found["max_relative_difference"] > TOLERANCE)


def seconds_of(*runs: Run) -> dict[str, float]:
    """Returns the median seconds of a step after the first, by run."""
    return {one.folder.name: median(step.seconds for step in one.steps[1:]) for one in runs}


if __name__ == "__main__":
    exit_on_bad_input("whole_and_sectors.py", main)
