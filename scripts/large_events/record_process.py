"""Runs a command of `bigtrk` in this process, and records the seconds and bytes that it took.

    python scripts/large_events/record_process.py RECORD COMMAND ARGUMENT...

Each rank of a launcher writes RECORD/RANK.json, a process without one RECORD/0.json. The bytes are
the largest memory that the process had, with all that the command imported; `moved` those that it
read from disks and wrote to them.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bigtrk import cli
from bigtrk.disk.files import write_json
from scripts.bench.bench_reconstruct import peak_memory


def disk_bytes() -> int:
    """Returns the bytes that this process has read from disks and written to them (proc(5))."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["read_bytes"]) + int(counts["write_bytes"])


def run_here(command: Sequence[str]) -> None:
    """Runs a command of `bigtrk` in this process; raises SystemExit if it failed."""
    sys.argv = ["bigtrk", *command]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    start = time.perf_counter()
    record, command = Path(sys.argv[1]), sys.argv[2:]
    run_here(command)
    took = {"seconds": time.perf_counter() - start, "bytes": peak_memory(), "moved": disk_bytes()}
    write_json(record / f"{os.environ.get('RANK', '0')}.json", took)


if __name__ == "__main__":
    main()
