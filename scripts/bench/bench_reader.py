"""Time the event reader against pandas.read_csv on the same files; print one JSON line.

    python scripts/bench/bench_reader.py FOLDER [--event NAME] [--repeats 15]

`reader` parses and validates, `pandas` only parses; their runs alternate, so that a busy machine
slows both alike. Medians in milliseconds: `ms` of the clock, `cpu_ms` of all threads.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from bigtrk.events.reader import find_events, read_event

TABLES = ("hits", "cells", "particles", "truth")


def milliseconds(call: Callable[[], object]) -> tuple[float, float]:
    """Measures clock and CPU time of one call."""
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return 1000 * (time.perf_counter() - clock), 1000 * (time.process_time() - cpu)


def medians(runs: list[tuple[float, float]]) -> dict[str, float]:
    clock, cpu = zip(*runs, strict=True)
    return {"ms": round(statistics.median(clock), 1), "cpu_ms": round(statistics.median(cpu), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--event")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    event = arguments.event or find_events(arguments.folder)[0]
    names = (f"{event}-{table}.csv{end}" for table in TABLES for end in ("", ".gz"))
    files = [arguments.folder / name for name in names if (arguments.folder / name).exists()]
    reader, pandas = [], []
    for _ in range(arguments.repeats):
        reader.append(milliseconds(lambda: read_event(arguments.folder, event)))
        pandas.append(milliseconds(lambda: [pd.read_csv(file) for file in files]))
    report = {"event": event, "reader": medians(reader), "pandas": medians(pandas)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
