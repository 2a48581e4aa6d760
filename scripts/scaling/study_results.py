"""Series of trainings by bigtrk's own commands, as result files.

    python scripts/scaling/study_results.py scaling GRAPHS [--output FILE] [--publish]
    python scripts/scaling/study_results.py study_ex3 GRAPHS SECTORS --minutes 3.5 model.hidden=32
    python scripts/scaling/study_results.py study_event1000 GRAPHS SECTORS --minutes 2 KEY=VALUE...
    python scripts/scaling/study_results.py study_pipeline FILTERED SECTORS --minutes 4 KEY=VALUE...

`scaling`: `bigtrk scale`, weak and strong, on 1 and 2 ranks with three repeats. The others: `bigtrk
study` of GRAPHS and SECTORS with the settings given. Runs go to a new folder, or to --work, where
they are continued. The last line is one JSON object: seconds of an epoch and efficiency by series
and ranks; or edge metrics at equal time by method.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input
from bigtrk.disk.files import read_json
from scripts.results import Results, add_options

SCALING = "scaling"
NAMES = (SCALING, "study_ex3", "study_event1000", "study_pipeline")
# Numbers of events to train on and to validate: per rank, and in all.
SERIES = {"weak": (32, 8), "strong": (64, 16)}
MODEL = ("model.hidden=32", "model.layers=4")


def bigtrk(*arguments: str) -> str:
    """Returns what a command prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
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


def study(work: Path, arguments: list[str]) -> dict[str, Any]:
    """Returns what `bigtrk study` writes."""
    bigtrk("study", f"--out={work / 'study'}", *arguments)
    found: dict[str, Any] = read_json(work / "study" / "study.json")
    return found


def study_summary(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        name: {key: method["at_equal_time"][key] for key in ("auc", "efficiency", "purity")}
        for name, method in found["methods"].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--work", type=Path, help="kept; a new folder by default")
    add_options(parser)
    arguments, passed_on = parser.parse_known_args()
    results = Results(arguments.name, arguments)
    work: Path = arguments.work or Path(tempfile.mkdtemp(prefix="bigtrk-study-"))
    run, summary = (
        (scaling, scaling_summary) if arguments.name == SCALING else (study, study_summary)
    )
    found = run(work, passed_on)
    results.write(summary(found), arguments=passed_on, **found)


if __name__ == "__main__":
    exit_on_bad_input("study_results.py", main)
