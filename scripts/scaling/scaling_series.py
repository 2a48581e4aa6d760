"""Weak and strong scaling by `bigtrk scale`, as a result file.

    python scripts/scaling/scaling_series.py GRAPHS [KEY=VALUE]... [--work FOLDER]
        [--output FILE] [--publish]

Trains both series on 1 and 2 ranks with three repeats, in a new folder, or in --work, where they
are continued. The last line is one JSON object: seconds of an epoch and efficiency by series and
ranks.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input
from scripts.results import Results, add_options

# Numbers of events to train on and to validate: per rank, and in all.
SERIES = {"weak": (32, 8), "strong": (64, 16)}
MODEL = ("model.hidden=32", "model.layers=4")


def bigtrk(*arguments: str) -> str:
    """Returns what a command prints; raises CalledProcessError if it failed."""
    command = [sys.executable, "-m", "bigtrk", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def scaling(work: Path, arguments: list[str]) -> dict[str, Any]:
    """Runs both series and reports them: a point per series and number of ranks."""
    folders = [str(work / kind) for kind in SERIES]
    for (kind, (events, validation)), folder in zip(SERIES.items(), folders, strict=True):
        sizes = (f"--events={events}", f"--validation={validation}")
        bigtrk("scale", kind, "--ranks=1,2", *sizes, f"--out={folder}", *arguments, *MODEL)
    lines = bigtrk("report", *folders, "--json").splitlines()
    return {"points": [json.loads(line) for line in lines]}


def scaling_summary(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        f"{point['kind']}_{point['ranks']}": {
            "epoch_seconds": point["epoch_seconds"]["mean"],
            "efficiency": point["efficiency"]["mean"],
        }
        for point in found["points"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    add_options(parser)
    arguments, passed_on = parser.parse_known_args()
    results = Results("scaling", arguments)
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-scaling-"))
    found = scaling(work, passed_on)
    results.write(scaling_summary(found), arguments=passed_on, **found)


if __name__ == "__main__":
    exit_on_bad_input("scaling_series.py", main)
