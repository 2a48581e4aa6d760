"""The resources that a training's processes hold, read from /proc while it runs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from bigtrk.records.run_folder import METRICS
from scripts.faults.training_process import RANKS, Launch

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
    """A sample after so many steps: the launch's number of processes, and what each rank holds."""

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
    """Sums what some processes hold; `folder` has the files of the training.

    Raises:
        OSError, KeyError: one has ended.
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
