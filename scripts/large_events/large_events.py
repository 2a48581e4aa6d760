"""Takes large events through all that comes before and after a training, by size.

    python scripts/large_events/large_events.py [--work FOLDER] [--sizes 1M,3M,10M,40M]
        [--output FILE] [--quick | --publish]

Events of about 1, 3, 10 and 40 M edges are simulated in the Open Data Detector, their graphs built
by the same windows, cut in eight sectors by METIS, read as a training reads them, and evaluated
with a small model. Every stage is a process of its own, which first goes through the stage twice
with an event of a hundred particles: once to start, and once for what even the least event takes.
An event's seconds are those beyond the latter, so that the start of a program flatters no size, and
they are compared per edge (of stages that see no edges, per hit) with those of the smallest. The
last line is one JSON object: hits and edges of the largest event, the largest memory of any
process, the worst ratio of times per edge, and that of each stage. The exit status is 1 if a
process took more than 16 GiB, or a ratio is above 1.2.

All sizes take turns, three times over, and medians count: one event measured once, in a minute in
which the host was slow, decided the ratio of a stage before. The smallest event runs three times in
each turn, as every ratio stands on it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.graphs.storage.sector_folder import SectorFolder
from scripts.bench.bench_reconstruct import peak_memory
from scripts.large_events.record_process import run_here
from scripts.physics.large_event import GIB, measured
from scripts.results import Results, add_options

# Edges grow with the square of the particles: the windows stay as they are.
SIZES = {"1M": 13_900, "3M": 24_200, "10M": 44_400, "40M": 93_000}
QUICK = {"small": 500, "larger": 1000}
LEAST = 100  # particles of the event that each process starts with
SAMPLE = ["--events", "8", "--particles", "1000", "--seed", "1"]
# Windows learnt from the sample for particles above it leave 45 edges per hit of the largest event.
PT_MIN = 1.5  # GeV
PARTS = 8
ROUNDS, OFTEN = 3, 3
LIMIT, LARGEST_RATIO = 16.0, 1.2  # GiB
OF_HITS = ("simulate", "read event")  # stages that see no edges
Runs = dict[str, list[dict[str, float]]]  # by stage, what `took` returned
MODEL = ("model.hidden=8", "model.layers=1", "model.precision=fp32", "optimizer.lr=0.01")


@dataclass(frozen=True)
class Stage:
    """A stage: a command of bigtrk, or of READINGS with its folder; out: the folder it makes."""

    name: str
    command: Sequence[str]
    out: Path | None = None


def _read_event(folder: Path) -> object:
    from bigtrk.events.reader import read_event

    return read_event(folder)


def _read_graph(folder: Path) -> object:
    from bigtrk.training.data.event_source import open_events

    [source] = open_events([folder])
    return source.read(0, 1)


def _read_sector(folder: Path) -> object:
    from bigtrk.training.data.event_source import open_events

    [source] = open_events([folder])
    return source.read(0, source.parts)


READINGS: dict[str, Callable[[Path], object]] = {
    "read event": _read_event,
    "read graph": _read_graph,
    "read sector": _read_sector,
}


def prepare(work: Path) -> None:
    """Makes windows and a trained model of small events in `work`."""
    events, graphs = work / "sample", work / "sample_graphs"
    run = f"run.folder={work / 'run'}"
    for command in (
        ["simulate", str(events), *SAMPLE, "--detectors", "odd"],
        ["build", str(events), str(graphs), "--learn-windows", "--pt-min", str(PT_MIN)],
        ["train", f"data.train=[{graphs}]", "training.epochs=20", run, *MODEL],
    ):
        measured(command[0], command, work)


def stages_of(work: Path, folder: Path, particles: int) -> list[Stage]:
    """Lists the stages of an event of `particles` in `folder`."""
    events, graphs, sectors = (folder / name for name in ("events", "graphs", "sectors"))
    size = ["--events", "1", "--particles", str(particles), "--detectors", "odd"]
    windows = ["--windows", str(work / "sample_graphs" / "windows.yaml")]
    cut = ["--parts", str(PARTS), "--workers", "1"]
    return [
        Stage("simulate", ["simulate", str(events), *size], events),
        Stage("read event", [str(events)]),
        Stage("build", ["build", str(events), str(graphs), *windows], graphs),
        Stage("read graph", [str(graphs)]),
        Stage("partition", ["partition", str(graphs), str(sectors), *cut], sectors),
        Stage("read sector", [str(sectors)]),
        Stage("evaluate", ["evaluate", str(work / "run"), str(graphs), "--tracks"]),
    ]


def took(stage: Stage, least: Stage) -> dict[str, float]:
    """Runs a stage in a process of its own, which starts with that of the `least` event; returns
    the seconds beyond those of that event, the process's other ones (`start`: also for removing
    what was there before), and the bytes. Raises InputError if it failed.
    """
    say(f"$ {stage.name} {' '.join(stage.command)}", style="bold")
    turn = json.dumps([[str(one.out or ""), *one.command] for one in (least, least, stage)])
    command = [sys.executable, __file__, "--stage", stage.name, turn]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    passed = time.perf_counter() - start
    if done.returncode:
        raise InputError(f"{stage.name} ended with status {done.returncode}")
    printed = json.loads(done.stdout.splitlines()[-1])
    _, least_again, whole = printed["seconds"]
    return {
        "start": passed - least_again - whole,
        "seconds": whole - least_again,
        "bytes": printed["bytes"],
    }


def run_stage(name: str, turn: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Runs a stage of several events in this process; returns the seconds of each, and the bytes.

    turn: of each event the folder that the stage makes anew (or "") and its command.
    """
    times = []
    for out, *command in turn:
        if out:
            shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        if name in READINGS:
            READINGS[name](Path(command[0]))
        else:
            run_here(command)
        times.append(time.perf_counter() - start)
    return {"seconds": times, "bytes": peak_memory()}


def measure(
    work: Path, sizes: dict[str, int], rounds: int, often: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Runs all stages of events of `sizes`, particles by name, one event after the other and
    `rounds` times over, those of `often` OFTEN times each time; returns a row for each.
    """
    runs: dict[str, Runs] = {name: {} for name in sizes}
    least = stages_of(work, work / "least", LEAST)
    turn = [name for name in sizes for _ in range(OFTEN if name in often else 1)]
    for name in turn * rounds:
        for stage, first in zip(stages_of(work, work / name, sizes[name]), least, strict=True):
            runs[name].setdefault(stage.name, []).append(took(stage, first))
    return [row_of(work / name, particles, runs[name]) for name, particles in sizes.items()]


def row_of(folder: Path, particles: int, runs: Runs) -> dict[str, Any]:
    """Returns an event's size, and by stage its seconds, their median, that of starting, and the
    most bytes.
    """
    stages = {}
    for stage, found in runs.items():
        seconds = [one["seconds"] for one in found]
        held = max(one["bytes"] for one in found)
        start = median(one["start"] for one in found)
        stages[stage] = {
            "seconds": median(seconds),
            "rounds": seconds,
            "start": start,
            "bytes": held,
        }
    [graph] = GraphFolder(folder / "graphs").manifest["events"].values()
    [sectors] = SectorFolder(folder / "sectors").manifest["events"].values()
    quality = {key: sectors["quality"][key] for key in ("metis_seconds", "cut_fraction")}
    sizes = {"hits": graph["nodes"], "edges": graph["edges"]}
    return {"size": folder.name, "particles": particles, **sizes, **quality, "stages": stages}


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns by stage the worst time per edge, or per hit, over that of the first of `rows`."""

    def rate(row: dict[str, Any], stage: str) -> float:
        size = row["hits" if stage in OF_HITS else "edges"]
        return float(row["stages"][stage]["seconds"] / size)

    first, *larger = rows
    return {
        stage: max(rate(row, stage) for row in larger) / rate(first, stage)
        for stage in first["stages"]
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Makes the last line."""
    by_stage = ratios(rows)
    return {
        "hits": rows[-1]["hits"],
        "edges": rows[-1]["edges"],
        "peak_gib": max(s["bytes"] for row in rows for s in row["stages"].values()) / GIB,
        "worst_ratio": max(by_stage.values()),
        "ratios": by_stage,
    }


def _chosen(names: str) -> dict[str, int]:
    chosen = names.split(",")
    unknown = [name for name in chosen if name not in SIZES]
    if unknown or len(chosen) < 2:
        raise InputError(f"--sizes {names}: name two or more of {', '.join(SIZES)}")
    return {name: particles for name, particles in SIZES.items() if name in chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="a new folder to keep everything in")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of these, two or more")
    parser.add_argument("--stage", nargs=2, metavar=("NAME", "TURN"), help=argparse.SUPPRESS)
    add_options(parser, quick="two events of a few thousand hits")
    arguments = parser.parse_args()
    if arguments.stage:
        name, turn = arguments.stage
        print(json.dumps(run_stage(name, json.loads(turn))))
        return
    results = Results("large_events", arguments)
    sizes = QUICK if arguments.quick else _chosen(arguments.sizes)
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or Path(folder)).resolve()
        prepare(work)
        rounds, often = (1, ()) if arguments.quick else (ROUNDS, [next(iter(sizes))])
        rows = measure(work, sizes, rounds, often)
    found = summary(rows)
    results.write(found, rows=rows)
    worst = found["peak_gib"] > LIMIT or found["worst_ratio"] > LARGEST_RATIO
    raise SystemExit(int(worst and not arguments.quick))


if __name__ == "__main__":
    exit_on_bad_input("large_events.py", main)
