"""Trains an event whose edges between layers exceed the memory, and measures what that takes.

    sudo python scripts/large_events/any_size.py [--work FOLDER] [--spill FOLDER] [--gib 16]
        [--steps 3] [--output FILE] [--quick | --publish]

Two events are simulated, and their graphs built by the same windows: one of 3 M edges, which is
trained in memory, and again with its edges in files, and one of 40 M edges, which is trained with
edges in files under a limit of memory that the kernel enforces (memory_limit.py, which takes root).
Network, precision and batch are the same (hidden 64, 8 layers, bf16, one rank). The last line is
one JSON object: the edges of the large event, the limit and the peak of memory (the control
group's own, with the pages of the graph's file), the time per edge of the large event over that of
the small one in memory (medians of the steps after the first), the disk that its edges took at
most, and the rate at which it was read and written. The exit status is 1 if the two trainings of
the small event differ in a bit of their losses or weights, or the large one ran out of memory.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from bigtrk.console import exit_on_bad_input, say
from bigtrk.cost.machines import find_machine
from bigtrk.disk.files import read_json
from bigtrk.disk.local_files import free_bytes
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.records.run_folder import read_run
from bigtrk.training.data.event_source import open_events
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from scripts.large_events.large_events import PT_MIN, SAMPLE, SIZES
from scripts.large_events.memory_limit import memory_group
from scripts.physics.large_event import GIB, RECORDING, measured
from scripts.results import Results, add_options

QUICK = {"3M": 500, "40M": 1000}
MODEL = {"hidden": 64, "layers": 8, "precision": "bf16"}
SMALL_STEPS = 4
# Of the limit, what routing may fill: the rest is for the kernel's buffers and what is not
# predicted.
SHARE = 0.85


def make_graphs(work: Path, particles: dict[str, int]) -> None:
    """Simulates the events, and builds their graphs by windows learnt from a sample."""
    sample = work / "sample", work / "sample_graphs"
    windows = ["--windows", str(sample[1] / "windows.yaml")]
    commands = [
        ["simulate", str(sample[0]), *SAMPLE, "--detectors", "odd"],
        ["build", str(sample[0]), str(sample[1]), "--learn-windows", "--pt-min", str(PT_MIN)],
    ]
    for name, number in particles.items():
        events = str(work / f"events_{name}")
        size = ["--events", "1", "--particles", str(number), "--detectors", "odd"]
        commands.append(["simulate", events, *size])
        commands.append(["build", events, str(work / f"graphs_{name}"), *windows])
    for command in commands:
        if not Path(command[2 if command[0] == "build" else 1]).exists():
            measured(command[0], command, work)


class Watch:
    """Notes how much less of a disk is free than at the start, at most, while a block runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ended = folder, Event()
        self._start = self._least = free_bytes(folder)
        self._thread = Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            self._least = min(self._least, free_bytes(self._folder))

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def taken(self) -> int:
        return self._start - self._least


def training(work: Path, name: str, way: str, steps: int, *settings: str) -> list[str]:
    """Returns the command that trains on the graph `name` in the run folder `way`."""
    where = f"data.train=[{work}/graphs_{name}]", "data.validation=0", f"run.folder={work}/{way}"
    model = [f"model.{key}={value}" for key, value in MODEL.items()]
    command = ["train", *where, f"training.epochs={steps}", *model, *settings]
    return [sys.executable, str(RECORDING), str(work / "records" / way), *command]


def found_in(work: Path, way: str) -> dict[str, Any]:
    """Reads what a training took: its losses, seconds of its steps, weights and process."""
    steps = read_run(work / way).steps
    return {
        "losses": [step.loss for step in steps],
        "step_seconds": [step.seconds for step in steps],
        "weights": sha256((work / way / "model.safetensors").read_bytes()).hexdigest(),
        **read_json(work / "records" / way / "0.json"),
    }


def least_gib(work: Path) -> float:
    """Returns the memory that is predicted to suffice for the small event with edges in files."""
    configuration = Configuration.model_validate({"model": MODEL})
    cost = replace(make_cost(configuration, 1, 1, find_machine(None), events=1), spills_beyond=0.0)
    [source] = open_events([work / "graphs_3M"])
    return 1.001 * cost.memory(source.size, 1, 1).total / GIB


def train_small(work: Path, spill: Path) -> dict[str, Any]:
    """Trains the small event in memory, and with all of its edges in files."""
    found = {}
    in_files = (f"training.spill={spill}", f"training.memory_gib={least_gib(work)}")
    for way, settings in (("memory", ()), ("files", in_files)):
        command = training(work, "3M", way, SMALL_STEPS, *settings)
        say(f"$ bigtrk {' '.join(command[3:])}", style="bold")
        subprocess.run(command, check=True)
        found[way] = found_in(work, way)
    return found


def drop_pages(folder: Path) -> None:
    """Has the system forget what it keeps of a folder's files, so that their pages are charged to
    who reads them next.
    """
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # pages that are not on the disk yet would stay
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train_large(work: Path, spill: Path, gib: float, steps: int) -> dict[str, Any]:
    """Trains the large event in `gib` GiB of memory; returns what it took, and what the control
    group and the disk counted.
    """
    settings = (f"training.spill={spill}", f"training.memory_gib={SHARE * gib}")
    command = training(work, "40M", "large", steps, *settings)
    say(f"$ bigtrk {' '.join(command[3:])}", style="bold")
    drop_pages(work / "graphs_40M")
    with memory_group(int(gib * GIB)) as group, Watch(spill) as watch:
        status = group.run(command)
        counted = {"status": status, "peak": group.peak(), "out_of_memory": group.kills()}
    return {**counted, "disk": watch.taken, **(found_in(work, "large") if status == 0 else {})}


def summary(gib: float, graphs: dict[str, Any], small: Any, large: Any) -> dict[str, Any]:
    """Makes the last line."""
    edges = {name: graph["edges"] for name, graph in graphs.items()}
    found: dict[str, Any] = {
        "edges": edges["40M"],
        "memory_limit_gib": gib,
        "peak_gib": large["peak"] / GIB,
        "time_per_edge_ratio": None,
        "disk_gb": large["disk"] / 1e9,
        "disk_mb_per_second": None,
    }
    if large["status"] == 0:
        per_edge = median(large["step_seconds"][1:]) / edges["40M"]
        in_memory = median(small["memory"]["step_seconds"][1:]) / edges["3M"]
        found["time_per_edge_ratio"] = per_edge / in_memory
        found["disk_mb_per_second"] = large["moved"] / sum(large["step_seconds"]) / 1e6
    return found


def passed(small: Any, large: Any) -> bool:
    """Whether both ways give the same bits, and the large event fitted its memory."""
    ways = small["memory"], small["files"]
    same = all(ways[0][key] == ways[1][key] for key in ("losses", "weights"))
    return same and large["status"] == 0 and large["out_of_memory"] == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="a folder to keep events and runs in")
    parser.add_argument("--spill", type=Path, help="the folder of the edges' files (in WORK)")
    parser.add_argument("--gib", type=float, default=16.0, help="memory of the large training")
    parser.add_argument("--steps", type=int, default=3, help="of the large training")
    add_options(parser, quick=f"{QUICK['40M']} particles instead of {SIZES['40M']}")
    arguments = parser.parse_args()
    results = Results("any_size", arguments)
    particles = QUICK if arguments.quick else {name: SIZES[name] for name in QUICK}
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or Path(folder)).resolve()
        spill = (arguments.spill or work / "spill").resolve()
        spill.mkdir(parents=True, exist_ok=True)
        make_graphs(work, particles)
        graphs = {name: graph_of(work / f"graphs_{name}") for name in particles}
        small = train_small(work, spill)
        large = train_large(work, spill, arguments.gib, arguments.steps)
    found = summary(arguments.gib, graphs, small, large)
    results.write(found, graphs=graphs, small=small, large=large)
    raise SystemExit(int(not passed(small, large)))


def graph_of(folder: Path) -> dict[str, Any]:
    """Returns the record of the only graph of a folder."""
    [graph] = GraphFolder(folder).manifest["events"].values()
    return dict(graph)


if __name__ == "__main__":
    exit_on_bad_input("any_size.py", main)
