"""Every engine, cut and recomputation against one whole-graph process in float64.

    python scripts/parity/parity_matrix.py [--engines DDP ZeRO-3] [--output FILE]
        [--quick | --publish]

Progress goes to standard error, a table to standard output; the last line is one JSON object with
`cases`, `failed`, `worst_fp64` and `worst_fp32` (largest relative difference of logits, gradients
or weights after five SGD steps). The result file also has the seconds that all of it took. Exit
status 1 where a case fails.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product

from rich.table import Table

from bigtrk.console import Screen, exit_on_bad_input, follow
from scripts.results import Results, add_options
from tests.distributed.matrix import ENGINES, KINDS, PER_RANK, Case, Trial, all_trials, run_trials
from tests.distributed.ranks import run_ranks

# A launch of this many trials takes a minute or two: short enough to show progress.
_PER_LAUNCH = 16


def run(
    trials: Sequence[Trial], work: Callable[..., list[Case]] = run_trials
) -> Iterator[list[Case]]:
    """Runs `work` on all trials, in launches of one world size each; yields a launch's cases."""
    by_world = sorted(trials, key=lambda trial: trial.world_size)
    launches = [
        (world, chunk[i : i + _PER_LAUNCH])
        for world, group in groupby(by_world, key=lambda trial: trial.world_size)
        for chunk in [list(group)]
        for i in range(0, len(chunk), _PER_LAUNCH)
    ]
    for world, chunk in follow(launches, len(launches), "launches"):
        yield run_ranks(world, work, chunk, fresh=True)[0]


def summary(cases: Sequence[Case]) -> dict[str, float | int]:
    """Makes the last line."""
    worst = {
        f"worst_{precision}": max(
            (case.worst for case in cases if case.trial.precision == precision), default=0.0
        )
        for precision in ("fp64", "fp32")
    }
    return {"cases": len(cases), "failed": sum(not case.passed for case in cases), **worst}


def table(cases: Sequence[Case]) -> Table:
    """Lists the worst difference by engine, precision, sectors on a rank and kind of graph."""
    shown = Table("engine", "precision", "sectors per rank", *KINDS, "cases", "failed")
    for engine, precisions in ENGINES.items():
        for precision, per_rank in product(precisions, PER_RANK):
            of = (engine, precision, per_rank)
            chosen = [case for case in cases if _row(case.trial) == of]
            if chosen:
                worst = [max(case.worst for case in chosen if case.kind == kind) for kind in KINDS]
                failed = sum(not case.passed for case in chosen)
                cells = [f"{value:.0e}" for value in worst]
                shown.add_row(*map(str, of), *cells, str(len(chosen)), str(failed))
    return shown


def _row(trial: Trial) -> tuple[str, str, int]:
    return trial.engine, trial.precision, trial.per_rank


def main() -> None:
    """Runs, prints the table, writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    add_options(parser, quick="one launch")
    arguments = parser.parse_args()
    results = Results("parity_matrix", arguments)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    trials = [trial for trial in all_trials() if trial.engine in arguments.engines]
    trials = trials[:_PER_LAUNCH] if arguments.quick else trials
    start = time.perf_counter()
    cases = [case for launch in run(trials) for case in launch]
    seconds = time.perf_counter() - start
    found = summary(cases)
    Screen(width=150).print(table(cases))
    results.write(found, seconds=seconds, rows=[case.row() for case in cases])
    raise SystemExit(bool(found["failed"]))


if __name__ == "__main__":
    exit_on_bad_input("parity_matrix.py", main)
