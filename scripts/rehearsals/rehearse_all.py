"""Every rehearsal of a launch on several hosts, one after the other, as one result file.

    python scripts/rehearsals/rehearse_all.py [--launch NAME]... [--output FILE] [--publish]

What each needs stands in its script; all need root except torchrun's. The last line is one JSON
object: hosts, ranks, steps, seconds and the largest relative difference of a step's loss from the
run on one host, by launch. Exit status 1 where losses differ.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.errors import InputError
from scripts.results import Results, add_options

FOLDER = Path(__file__).parent
LAUNCHES: dict[str, tuple[str, ...]] = {
    "torchrun": ("rehearse_torchrun.sh",),
    "deepspeed --num_nodes 2": ("rehearse_multinode.sh", "--nodes", "2"),
    "deepspeed --num_nodes 8": ("rehearse_multinode.sh", "--nodes", "8"),
    "SLURM, requeued once on its time limit": ("rehearse_slurm.sh",),
}
AGREE, DIFFER = 0, 1


def rehearse(launch: str) -> tuple[bool, dict[str, Any]]:
    """Runs a rehearsal; returns whether the losses agree, and its last line. Raises InputError if
    it did not come to its end.
    """
    script, *options = LAUNCHES[launch]
    command = ["bash", str(FOLDER / script), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode not in (AGREE, DIFFER) or not lines:
        raise InputError(f"{script} ended with status {done.returncode}: above is why")
    found: dict[str, Any] = json.loads(lines[-1])
    return done.returncode == AGREE, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launch", choices=list(LAUNCHES), action="append", help="of these alone")
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("rehearsals", arguments)
    chosen = arguments.launch or list(LAUNCHES)
    found = {launch: rehearse(launch) for launch in follow(chosen, len(chosen), "rehearsals")}
    differ = [launch for launch, (agree, _) in found.items() if not agree]
    results.write({launch: figures for launch, (_, figures) in found.items()}, differ=differ)
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    exit_on_bad_input("rehearse_all.py", main)
