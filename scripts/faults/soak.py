"""Finds out whether a long training keeps memory, files, threads and processes to what it had.

    python scripts/faults/soak.py [--steps 8000] [--output FILE] [--publish]

It trains on 2 ranks by torchrun with DDP: small simulated events in sectors that exchange halos, a
checkpoint every 10 steps, validation after each epoch of 20, norms, spike guard, clipping. Each
second it reads what each rank holds. The first fifth of the steps is left out: there, caches,
buffers and the allocator's heaps fill. Events are small and steps many, since memory
wanders by a few MiB: so a leak of 1 kB in each step shows.

Growth: the slope over the steps is above 3 standard errors, and comes to more than 2 % of the
memory, or to half a handle, file mapping or thread, over the steps that count. A checkpoint being
written opens a file and a batch being read maps one, so single samples differ. The number of
processes must not change at all. Exit status 1 if anything grows. The time of a step is printed and
not judged, as it depends on what else the machine does.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.machine import machine
from bigtrk.records.run_folder import METRICS
from bigtrk.shipped import DEFAULT as CONFIGURATION
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import show_end
from scripts.faults.training_process import RANKS, Launch
from scripts.results import Results, add_options

EVENTS, VALIDATION, PARTICLES = 22, 2, 300
STEPS_PER_EPOCH = EVENTS - VALIDATION
SETTINGS = [
    f"data.validation={VALIDATION}", "model.hidden=32", "model.layers=4",
    "training.routing=stored", "training.checkpoint_every=10", "training.spike_guard=skip",
    "optimizer.gradient_clipping=1.0",
]  # fmt: skip
WARM_UP = 0.2
LEAST_MEMORY, LEAST_COUNT = 0.02, 0.5
POINTS = 200


PERIOD = 1.0  # s
STEP = b'"kind": "step"'


@dataclass(frozen=True)
class Held:
    """The resources of a rank. memory: MiB of its own, in memory or swapped out; handles: open file
    descriptors; mapped: mappings of files of the training.

    Anonymous memory alone counts, since that of files comes and goes with the system's cache, and
    the share of a library that counts as a process's with how many others have loaded it. A file
    can stay mapped when its descriptor is closed, so mappings are counted, too.
    """

    memory: float
    handles: int
    mapped: int
    threads: int


@dataclass(frozen=True)
class Sample:
    """A sample after `step` steps: the launch's number of processes, and what each rank holds."""

    step: int
    processes: int
    ranks: tuple[Held, ...]


def watch(launched: Launch, run: Path) -> Iterator[Sample]:
    """Yields a sample each second until the last process has ended."""
    while processes := launched.processes():
        try:
            ranks = tuple(held(launched.rank(rank), run.parent) for rank in range(RANKS))
            yield Sample(steps_done(run), len(processes), ranks)
        except (OSError, KeyError):  # a process ended meanwhile
            continue
        finally:
            time.sleep(PERIOD)


def held(processes: Sequence[int], folder: Path) -> Held:
    """Sums what some processes hold; `folder` has the files of the training. Raises OSError,
    KeyError if one has ended.
    """
    found = [astuple(_held(Path("/proc") / str(process), folder)) for process in processes]
    return (
        Held(*(sum(column) for column in zip(*found, strict=True))) if found else Held(0, 0, 0, 0)
    )


def _held(process: Path, folder: Path) -> Held:
    lines = (process / "status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    maps = (process / "maps").read_text().splitlines()
    return Held(
        memory=(int(status["RssAnon"][0]) + int(status["VmSwap"][0])) / 1024,
        handles=sum(1 for _ in (process / "fd").iterdir()),
        mapped=sum(f"{folder}/" in line for line in maps),
        threads=int(status["Threads"][0]),
    )


def steps_done(run: Path) -> int:
    """Counts steps by the run's record."""
    record = run / METRICS
    return record.read_bytes().count(STEP) if record.exists() else 0


WINDOWS = 20
ERRORS = 3  # standard errors that a slope must exceed


@dataclass(frozen=True)
class Trend:
    """A series over `steps` steps: its range, its mean, its slope per step, and the standard error
    of the slope.
    """

    low: float
    high: float
    level: float
    slope: float
    error: float
    steps: int

    @property
    def growth(self) -> float:
        """Returns the growth from the first to the last step."""
        return self.slope * self.steps

    def grows(self, least: float) -> bool:
        """Whether it grows by more than `least` in all, and by more than chance explains."""
        return self.growth > least and self.slope > ERRORS * self.error


def trend(steps: Sequence[int], values: Sequence[float]) -> Trend:
    """Fits least squares over the means of 20 windows, each of as many samples.

    Samples that follow each other are alike; taken for independent ones they would make the error
    too small.

    Raises:
        InputError: there are fewer samples than windows.
    """
    if len(values) < WINDOWS:
        raise InputError(
            f"{len(values)} samples are too few to tell growth from chance; train more --steps"
        )
    x, y = (
        np.array([window.mean() for window in np.array_split(np.array(series, float), WINDOWS)])
        for series in (steps, values)
    )
    x, y = x - x.mean(), y - y.mean()
    slope = x @ y / (x @ x)
    residuals = y - slope * x
    return Trend(
        low=min(values),
        high=max(values),
        level=float(np.mean(values)),
        slope=float(slope),
        error=float(np.sqrt(residuals @ residuals / ((WINDOWS - 2) * (x @ x)))),
        steps=steps[-1] - steps[0],
    )


KINDS = [field.name for field in fields(Held)]

Trends = dict[str, list[Trend]]  # by what is held, of each rank


def make_sectors(folder: Path) -> Path:
    """Makes simulated events, each cut for all ranks."""
    simulate_folder(folder / "events", range(EVENTS), PARTICLES, seed=0, detectors=None)
    build_folder(folder / "events", folder / "graphs")
    cut = ["-m", "partition", str(folder / "graphs"), str(folder / "sectors"), f"--parts={RANKS}"]
    subprocess.run([sys.executable, *cut], check=True, stdout=subprocess.DEVNULL)
    return folder / "sectors"


def soak(folder: Path, epochs: int) -> list[Sample]:
    """Trains in `folder`/run, and watches; raises InputError if the training failed."""
    run, log = folder / "run", folder / "log"
    data = [f"data.train=[{make_sectors(folder)}]", f"run.folder={run}"]
    arguments = [str(CONFIGURATION), *data, *SETTINGS, f"training.epochs={epochs}"]
    with Launch(TRAIN, arguments, log) as launched:
        samples = list(watch(launched, run))
    if launched.failed:
        show_end(log)
        raise InputError("the training failed: above is why")
    return samples


def counted(samples: Sequence[Sample], steps: int) -> list[Sample]:
    """Lists samples after the warm-up, and before the training of `steps` steps ends."""
    return [sample for sample in samples if WARM_UP * steps < sample.step < steps]


def trends(samples: Sequence[Sample]) -> Trends:
    steps = [sample.step for sample in samples]
    return {
        kind: [
            trend(steps, [getattr(sample.ranks[rank], kind) for sample in samples])
            for rank in range(RANKS)
        ]
        for kind in KINDS
    }


def grown(found: Trends, processes: Sequence[int]) -> list[str]:
    """Names what grew, or changed though it must not."""
    names = [
        f"{kind} of rank {rank}"
        for kind, of_ranks in found.items()
        for rank, one in enumerate(of_ranks)
        if one.grows(LEAST_MEMORY * one.level if kind == "memory" else LEAST_COUNT)
    ]
    return names + ["processes"] * (min(processes) != max(processes))


def step_seconds(run: Path) -> Trend:
    """Returns the trend of a step's seconds after the warm-up."""
    records = map(json.loads, (run / METRICS).read_text().splitlines())
    seconds = [record["seconds"] for record in records if record["kind"] == "step"]
    first = int(WARM_UP * len(seconds))
    return trend(range(first, len(seconds)), seconds[first:])


def thinned(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns at most 200 samples of those of all steps, column by column."""
    kept = samples[:: -(-len(samples) // POINTS)]
    ranks = [
        dict(zip(KINDS, zip(*(astuple(s.ranks[rank]) for s in kept), strict=True), strict=True))
        for rank in range(RANKS)
    ]
    return {
        "step": [s.step for s in kept],
        "processes": [s.processes for s in kept],
        "by_rank": ranks,
    }


def table(found: Trends, processes: Sequence[int]) -> Table:
    caption = machine()["cpu"]
    columns = ("", "rank", "least", "most", "per 1,000 steps", "in all")
    shown = Table(*columns, title="Held, and its growth", caption=caption)
    for kind, of_ranks in found.items():
        for rank, one in enumerate(of_ranks):
            shown.add_row(
                "memory, MiB" if kind == "memory" else kind,
                str(rank),
                f"{one.low:.4g}",
                f"{one.high:.4g}",
                f"{1000 * one.slope:+.3f} ± {1000 * one.error:.3f}",
                f"{one.growth:+.2f}",
            )
    shown.add_row("processes", "all", str(min(processes)), str(max(processes)))
    return shown


def summary(
    found: Trends, processes: Sequence[int], grew: list[str], steps: int
) -> dict[str, float | dict[str, float]]:
    """Makes the last line: the slope of the rank whose memory grows most, how many things grew."""
    memory = max(found["memory"], key=lambda one: one.slope)
    ranges = {
        kind: {"low": min(one.low for one in of_ranks), "high": max(one.high for one in of_ranks)}
        for kind, of_ranks in found.items()
        if kind in ("handles", "threads")
    }
    return {
        "steps": steps,
        "grew": len(grew),
        "memory_slope_mib_per_1000_steps": round(1000 * memory.slope, 4),
        "standard_error": round(1000 * memory.error, 4),
        **ranges,
        "processes": {"low": min(processes), "high": max(processes)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=8000, help="rounded up to whole epochs")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("soak", arguments)
    epochs = -(-arguments.steps // STEPS_PER_EPOCH)
    steps = epochs * STEPS_PER_EPOCH
    with tempfile.TemporaryDirectory() as place:
        samples = soak(Path(place), epochs)
        seconds = step_seconds(Path(place) / "run")
    after = counted(samples, steps)
    found, processes = trends(after), [sample.processes for sample in after]
    grew = grown(found, processes)
    console.print(table(found, processes))
    say(
        f"a step takes {seconds.level:.4f} s, and after 1,000 steps "
        f"{1000 * seconds.slope:+.4f} ± {1000 * seconds.error:.4f} s"
    )
    results.write(
        summary(found, processes, grew, steps),
        grew=grew,
        warm_up=WARM_UP,
        samples=len(after),
        trends={kind: [asdict(one) for one in ranks] for kind, ranks in found.items()},
        step_seconds=asdict(seconds),
        series=thinned(samples),
        settings=SETTINGS,
    )
    raise SystemExit(bool(grew))


if __name__ == "__main__":
    exit_on_bad_input("soak.py", main)
