"""Finds out what becomes of trainings killed, starved, fed with NaN, or whose files are damaged.

    python scripts/faults/inject_faults.py --rounds 52 [--seed 0] [--output FILE] [--publish]
    python scripts/faults/inject_faults.py --rounds 4 --fault "disk full" --engine ddp --ranks 3

A round trains on 2 or 3 ranks, strikes at a random moment of a step or of a save, waits until all
processes have ended, and resumes. The run must end with the losses of every step and the weights of
one that was left alone, bit for bit. Faults, engines and numbers of ranks take turns. `detected`:
the disturbed launch failed, saying why where it can know, and what is damaged was named. `again`:
steps trained a second time, the most of a round; `steps lost`: those of them that a good checkpoint
held. A hang: a launch that has not ended 60 s after the fault; it is killed. It counts as not
detected.
"""

import argparse
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.machine import machine
from scripts.faults.fault_rounds import (
    DELAY,
    ENGINES,
    HANG,
    STEPS,
    Outcome,
    make_data,
    mounts,
    play,
    undisturbed,
)
from scripts.faults.faults import FAULTS, Plan
from scripts.results import Results, add_options


def plans(
    rounds: int, seed: int, faults: Sequence[str], engines: Sequence[str], ranks: Sequence[int]
) -> list[Plan]:
    """Yields faults in an order drawn anew each time that all have had their turn; each comes back
    on another number of ranks.
    """
    rng, order = random.Random(seed), list[tuple[str, int]]()
    while len(order) < rounds:
        turn = len(order) // len(faults)
        sizes = {fault: ranks[(turn + i) % len(ranks)] for i, fault in enumerate(faults)}
        order += [(fault, sizes[fault]) for fault in rng.sample(faults, len(faults))]
    return [
        Plan(
            fault,
            engines[i % len(engines)],
            size,
            rng.choice(STEPS),
            rng.random() < 0.5,
            rng.uniform(0, DELAY),
            rng.randrange(size),
            rng.randrange(2**32),
        )
        for i, (fault, size) in enumerate(order[:rounds])
    ]


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {
        "rounds": len(outcomes),
        "undetected": sum(not outcome.detected for outcome in outcomes),
        "hangs": sum(outcome.hung for outcome in outcomes),
        "steps_lost": sum(outcome.lost for outcome in outcomes),
        "wrong": sum(bool(outcome.wrong) for outcome in outcomes),
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """Makes a row for each fault; seconds are the longest until the last process ended."""
    columns = ("fault", "rounds", "detected", "steps lost", "again", "hang s", "wrong after")
    shown = Table(*columns, title="Faults", caption=machine()["cpu"])
    for name in FAULTS:
        rows = [outcome for outcome in outcomes if outcome.plan.fault == name]
        if rows:
            seconds = max(row.seconds for row in rows)
            found = summary(rows)
            shown.add_row(
                name,
                str(len(rows)),
                str(len(rows) - found["undetected"]),
                str(found["steps_lost"]),
                str(max(row.again for row in rows)),
                f"> {HANG}" if found["hangs"] else f"{seconds:.0f}",
                str(found["wrong"]),
            )
    return shown


def inject(rounds: Sequence[Plan], folder: Path) -> Iterator[Outcome]:
    """Yields the outcomes of `rounds`; one that came too late is played again."""
    data, whole = make_data(folder), dict[tuple[str, int], Path]()
    for i, plan in enumerate(rounds):
        alike = plan.engine, plan.ranks
        if alike not in whole:
            whole[alike] = undisturbed(data, folder / f"{plan.engine}-{plan.ranks}", *alike)
        outcome = None
        while outcome is None:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                outcome = play(plan, data, Path(place), whole[alike])
        found = "detected" if outcome.detected else "hung" if outcome.hung else "not detected"
        moment = f"save after step {plan.step}" if plan.in_save else f"step {plan.step}"
        where = f"{plan.engine} on {plan.ranks}, {moment}"
        said = f"{found}, ended after {outcome.seconds:.1f} s; {outcome.again} steps again"
        say(f"{i + 1}: {plan.fault}, {where}: {said} {outcome.wrong}")
        yield outcome


def possible(faults: list[str], folder: Path) -> list[str]:
    """Lists the faults that this user can inject.

    Raises:
        InputError: none is left.
    """
    if mounts(folder):
        return faults
    left_out = [name for name in faults if FAULTS[name].mounted]
    if left_out:
        say(f"left out, as this user may not mount file systems: {', '.join(left_out)}")
    if len(left_out) == len(faults):
        raise InputError("no fault is left to inject; run as root, or choose others")
    return [name for name in faults if name not in left_out]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=list(FAULTS), action="append", help="of these alone")
    parser.add_argument("--engine", choices=list(ENGINES), action="append", help="of these alone")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3], help="of these alone")
    add_options(parser)
    return parser.parse_args()


def main() -> None:
    """Exits with status 1 unless all was detected, nothing hung and nothing was lost."""
    arguments = parse_arguments()
    results = Results("faults", arguments)
    # This way all that was started is ended, and all that was mounted is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        faults = possible(arguments.fault or list(FAULTS), folder)
        engines = arguments.engine or list(ENGINES)
        rounds = plans(arguments.rounds, arguments.seed, faults, engines, arguments.ranks)
        outcomes = list(inject(rounds, folder))
    found = summary(outcomes)
    console.print(table(outcomes))
    results.write(found, outcomes=[asdict(outcome) for outcome in outcomes])
    raise SystemExit(any(found[name] for name in ("undetected", "hangs", "steps_lost", "wrong")))


if __name__ == "__main__":
    exit_on_bad_input("inject_faults.py", main)
