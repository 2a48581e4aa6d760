"""Checks what is exchanged with acorn, ACTS, ColliderML, TrackML and HEPTrkX, on real events
(HEPTrkX's graphs, TrackML's event 1000) and on simulated ones.

    python scripts/physics/interop_parity.py [--output FILE] [--publish]

The other side is independent: files written and read by a few lines of the tests, by PyTorch
Geometric, pandas, ONNX Runtime, torch.jit and the package colliderml, and results of acorn's own.
Checks on real events are skipped, and counted, where BIGTRK_TESTDATA names no folder; a package
that is missing is a failed check. The exit status is 1 if one failed. The last line is one JSON
object: how many checks there were, and the largest differences; relative ones to max(1, the largest
value), except ColliderML's metrics, which are shares.
"""

import argparse
import os
import tempfile
from pathlib import Path

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input
from scripts.physics.interop import acorn, acts, colliderml, tracks
from scripts.physics.interop.check import Material, Outcome, run_checks
from scripts.results import Results, add_options

CHECKS = (*acorn.CHECKS, *acts.CHECKS, *colliderml.CHECKS, *tracks.CHECKS)
WORST = ("onnx", "torchscript", "colliderml", "acorn", "acts_judge")


def testdata() -> Path | None:
    """Returns the folder of real events, if BIGTRK_TESTDATA names one."""
    folder = Path(os.environ.get("BIGTRK_TESTDATA") or "/nowhere")
    return folder if (folder / "data").is_dir() else None


def summary(outcomes: list[Outcome]) -> dict[str, float | None]:
    """Counts the checks, and finds the largest difference of each kind, None of none."""
    found = {name: [one.found[name] for one in outcomes if name in one.found] for name in WORST}
    return {
        "checks": len(outcomes),
        "skipped": sum(one.skipped for one in outcomes),
        "failed": sum(one.failed is not None for one in outcomes),
        **{f"{name}_worst": max(values, default=None) for name, values in found.items()},
    }


def show(outcomes: list[Outcome]) -> None:
    """Prints a line for each check."""
    table = Table("check", "", "found")
    for one in outcomes:
        state = "skipped" if one.skipped else "failed" if one.failed else "passed"
        values = ", ".join(f"{name} {value:.2g}" for name, value in one.found.items())
        table.add_row(one.name, state, one.failed or values)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    arguments = parser.parse_args()
    results = Results("interop", arguments)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run_checks(CHECKS, Material(Path(folder), testdata()))
    show(outcomes)
    counts = summary(outcomes)
    results.write(counts, outcomes=[one.as_json() for one in outcomes])
    raise SystemExit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    exit_on_bad_input("interop_parity.py", main)
