"""Measures how the memory of a training grows over its steps, with one heap for all threads, as
bigtrk has it (bigtrk/parallel/host.py), and with glibc's own number of heaps.

    python -m scripts.bench.heap_growth [--output FILE] [--publish]

Each training has one rank and 30 steps on three simulated events, whole or in sectors. The two
sides alternate, three trainings of each; figures are medians. `first` is the peak of the first
three steps, `last` that of all, `seconds` a step's without the first. The last line is one JSON
object: by how much the peak grows at most on each side, and the largest ratios of last peaks and of
seconds of one heap to several. Run it on an idle machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.records.run_folder import read_run
from scripts.bench.choice_draw import quietly
from scripts.results import CHECKOUT, Results, add_options

EVENTS, EPOCHS, REPEATS = 3, 10, 3
# glibc has at most so many heaps for each core, and hence as many as a training has threads.
PER_CORE = 8
ONE, SEVERAL = "one", "several"


@dataclass(frozen=True)
class Case:
    """Describes a training by its events' particles and its model."""

    particles: int
    hidden: int
    layers: int
    recompute: str
    sectors: int

    @property
    def settings(self) -> list[str]:
        return [
            f"model.hidden={self.hidden}",
            f"model.layers={self.layers}",
            f"model.recompute={self.recompute}",
            f"training.epochs={EPOCHS}",
            "training.routing=stored",
            "data.validation=0",
        ]


CASES = (
    Case(5400, hidden=16, layers=3, recompute="layer", sectors=2),
    Case(2900, hidden=32, layers=3, recompute="layer", sectors=2),
    Case(5400, hidden=64, layers=4, recompute="layer", sectors=4),
    Case(4100, hidden=32, layers=2, recompute="none", sectors=8),
    Case(4100, hidden=32, layers=2, recompute="none", sectors=1),
    Case(2300, hidden=64, layers=4, recompute="chunk", sectors=1),
)


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
    quietly(["partition", str(whole), str(cut), "--parts", str(case.sectors)])
    return cut


def train(case: Case, data: Path, heaps: int | None) -> dict[str, float]:
    """Trains in a process of its own; `heaps`: at most so many, bigtrk's number if None."""
    own = {} if heaps is None else {"MALLOC_ARENA_MAX": str(heaps)}
    environment = {key: text for key, text in os.environ.items() if key != "MALLOC_ARENA_MAX"}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, str(CHECKOUT / "bigtrk" / "train.py"), *case.settings]
        command += [f"data.train=[{data}]", f"run.folder={run}"]
        subprocess.run(command, env={**environment, **own}, check=True, stdout=subprocess.DEVNULL)
        record = read_run(run)
    peaks = [epoch.peak_memory_bytes for epoch in record.epochs]
    seconds = median(step.seconds for step in record.steps[1:])
    return {"first": peaks[0], "last": max(peaks), "seconds": seconds}


def measure_case(case: Case, work: Path) -> dict[str, Any]:
    """Trains with both numbers of heaps in turn; returns the row of results."""
    data = make_data(case, work)
    heaps = {ONE: None, SEVERAL: PER_CORE * (os.cpu_count() or 1)}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in heaps}
    for _ in range(REPEATS):
        for side, number in heaps.items():
            found[side].append(train(case, data, number))
    sides = {
        side: {name: median(one[name] for one in runs) for name in runs[0]}
        for side, runs in found.items()
    }
    return {**asdict(case), **sides}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Makes the last line."""

    def growth(side: str) -> float:
        return float(max(row[side]["last"] / row[side]["first"] for row in rows) - 1)

    def ratio(name: str) -> float:
        return float(max(row[ONE][name] / row[SEVERAL][name] for row in rows))

    return {
        "growth_one": growth(ONE),
        "growth_several": growth(SEVERAL),
        "peak_ratio": ratio("last"),
        "seconds_ratio": ratio("seconds"),
    }


def told(row: dict[str, Any]) -> str:
    """Writes a row as one line."""
    one, several = (row[side] for side in (ONE, SEVERAL))
    return (
        f"{row['particles']} particles, hidden {row['hidden']}, {row['recompute']}, "
        f"{row['sectors']} sectors: {one['first'] / 1e6:.0f} to {one['last'] / 1e6:.0f} MB with "
        f"one heap, {several['first'] / 1e6:.0f} to {several['last'] / 1e6:.0f} MB with several; "
        f"{one['seconds'] / several['seconds']:.2f} times as long"
    )


def measure(arguments: argparse.Namespace) -> None:
    results = Results("heap_growth", arguments)
    rows = []
    with tempfile.TemporaryDirectory(prefix="bigtrk-heap-") as work:
        for case in follow(CASES, len(CASES), "trainings"):
            rows.append(measure_case(case, Path(work)))
            say(told(rows[-1]))
    results.write(summary(rows), cases=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    arguments = parser.parse_args()
    exit_on_bad_input("heap_growth.py", lambda: measure(arguments))


if __name__ == "__main__":
    main()
