"""Measures `bigtrk reconstruct` from hits to tracks on two cores, stage by stage, by size of event.

    bigtrk pipeline train EVENTS PIPELINE
    python scripts/bench/bench_reconstruct.py PIPELINE [--output FILE] [--quick | --publish]

For each size a process of its own makes tracks of three simulated events without truth. Seconds and
edges are medians over these events, `bytes` is the largest memory of the process. Reading hits and
writing tracks is not counted. The last line is one JSON object: seconds and bytes by size.
"""

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import Any

from bigtrk import cli
from bigtrk.console import exit_on_bad_input, follow
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from scripts.results import Results, add_options

HITS = (25_000, 50_000, 100_000, 200_000, 400_000)
QUICK = (25_000, 100_000)
HITS_OF_A_PARTICLE = 10  # noise and hits of other particles are simulated in proportion
EVENTS, CORES = 3, 2
SEED = 271828  # unlike that of events that pipelines are trained on


def peak_memory(status: Path = Path("/proc/self/status")) -> int:
    """Returns the largest memory of this process so far, in bytes.

    ru_maxrss would be at least that of the process that started this one.
    """
    [line] = [one for one in status.read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def apart(arguments: Sequence[str]) -> dict[str, Any]:
    """Measures in a process of its own, which gets `arguments`; returns what it prints last. Raises
    InputError if it failed.
    """
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise InputError(f"'{shlex.join(command)}' ended with status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures(made: dict[str, Any], n_bytes: int) -> dict[str, Any]:
    """Takes medians over the events of what `bigtrk reconstruct` says of them."""
    events = list(made["events"].values())

    def medians(key: str) -> dict[str, float]:
        return {name: median(one[key][name] for one in events) for name in events[0][key]}

    return {
        "hits": median(one["hits"] for one in events),
        "edges": medians("edges"),
        "seconds": medians("seconds"),
        "all_seconds": median(sum(one["seconds"].values()) for one in events),
        "bytes": n_bytes,
        "notes": [note for one in events for note in one["notes"]],
    }


def measured(pipeline: Path, hits: int, folder: Path) -> dict[str, Any]:
    """Simulates events of about `hits` hits in `folder`, and measures the making of their tracks;
    raises InputError if that failed.
    """
    events, particles = folder / f"{hits}", hits // HITS_OF_A_PARTICLE
    simulate_folder(events, range(EVENTS), particles, SEED, detectors=None, with_truth=False)
    return {"size": hits, **apart([str(pipeline), "--events", str(events)])}


def measure_here(pipeline: Path, events: Path) -> dict[str, Any]:
    """Makes the tracks of `events`, next to them, by `bigtrk reconstruct`."""
    tracks = events.with_suffix(".tracks")
    sys.argv = ["bigtrk", "reconstruct", str(pipeline), str(events), str(tracks), "--json"]
    with redirect_stdout(io.StringIO()) as printed:
        try:
            cli.main()
        except SystemExit as end:
            if end.code:
                raise
    return figures(json.loads(printed.getvalue()), peak_memory())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pipeline", type=Path, help="folder of a pipeline")
    add_options(parser, quick="25,000 and 100,000 hits")
    parser.add_argument("--events", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.events:
        print(json.dumps(measure_here(arguments.pipeline, arguments.events)))
        return
    results = Results("reconstruct", arguments)
    # What is started from here runs on these cores, too.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    sizes = QUICK if arguments.quick else HITS
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measured(arguments.pipeline, hits, Path(folder))
            for hits in follow(sizes, len(sizes), "sizes")
        ]
    seconds, n_bytes = (
        {str(row["size"]): row[key] for row in rows} for key in ("all_seconds", "bytes")
    )
    results.write({"seconds": seconds, "bytes": n_bytes}, rows=rows)


if __name__ == "__main__":
    exit_on_bad_input("bench_reconstruct.py", main)
