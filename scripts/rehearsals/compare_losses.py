"""Compare the step losses of two runs; exit status 1 where they differ.

    python scripts/rehearsals/compare_losses.py RUN OTHER [--tolerance 1e-5] [--nodes 2]
        [--seconds 30]

One line says whether every step's loss agrees within the relative tolerance; a JSON line follows
with `ranks` and `steps` of OTHER and the largest difference. `--nodes` and `--seconds` are passed
on to it: a run does not know them.
"""

import argparse
import json
from pathlib import Path

from bigtrk.console import exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.records.run_folder import Run, read_run


def losses(run: Run) -> dict[int, float]:
    """Returns the loss by step; a step without one is not compared, so it counts as missing."""
    return {step.step: step.loss for step in run.steps if step.loss is not None}


def largest_difference(run: Run, other: Run) -> float:
    """Returns the largest of |a - b| / |a| over all steps; raises InputError if there are no steps,
    or not the same ones in both runs.
    """
    first, second = losses(run), losses(other)
    if not first:
        raise InputError(f"{run.folder}: no step has a loss; train it first")
    if first.keys() != second.keys():
        raise InputError(
            f"{other.folder}: holds {len(second)} steps, {run.folder} {len(first)}; "
            f"compare whole runs of one configuration"
        )
    return max(abs(first[step] - second[step]) / abs(first[step]) for step in first)


def compare(arguments: argparse.Namespace) -> None:
    """Prints the verdict and the JSON line."""
    run, other = read_run(arguments.run), read_run(arguments.other)
    difference = largest_difference(run, other)
    agree = difference <= arguments.tolerance
    say(
        f"{len(run.steps)} step losses of {other.folder} (on {other.record.world_size} ranks) "
        f"{'agree with' if agree else 'DIFFER from'} {run.folder} (on {run.record.world_size}) "
        f"{'within' if agree else 'by more than'} {arguments.tolerance:g}, relative"
    )
    report = {
        "nodes": arguments.nodes,
        "ranks": other.record.world_size,
        "steps": len(other.steps),
        "max_relative_difference": difference,
        "seconds": arguments.seconds,
    }
    print(json.dumps(report), flush=True)
    raise SystemExit(not agree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path, help="run folder to compare with")
    parser.add_argument("other", type=Path, help="run folder to compare")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="relative")
    parser.add_argument("--nodes", type=int, help="hosts of OTHER")
    parser.add_argument("--seconds", type=float, help="how long OTHER took")
    arguments = parser.parse_args()
    exit_on_bad_input("compare_losses.py", lambda: compare(arguments))


if __name__ == "__main__":
    main()
