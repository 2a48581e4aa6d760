"""What becomes of trainings that are killed, starved, fed with NaN, or whose files are damaged.

    python scripts/inject_faults.py --rounds 52 [--seed 0] [--output docs/results/faults.json]
    python scripts/inject_faults.py --rounds 4 --fault "disk full" --engine ddp

A round trains on 2 ranks, strikes at a random moment of a step or of a save, waits until all
processes have ended, and resumes. The run must end with the losses of every step and the weights of
one that was left alone, bit for bit. Faults and engines take turns. `detected`: the disturbed
launch failed, saying why where it can know, and what is damaged was named. `again`: steps trained a
second time, the most of a round; `steps lost`: those of them that a good checkpoint held. A hang:
a launch that has not ended 60 s after the fault; it is killed. It counts as not detected.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.errors import InputError
from bigtrk.events.production import simulate_folder
from bigtrk.files import read_json, write_json
from bigtrk.machine import machine, software
from bigtrk.studies.launch import tail
from bigtrk.train import DEFAULT as CONFIGURATION
from faults import FAULTS, TRAIN, Fault, Plan, poison_of
from launched import POLL, Launched

ENGINES = {
    "ddp": ["engine.name=ddp"],
    "fsdp2": ["engine.name=fsdp2"],
    "zero1": ["engine.name=deepspeed", "engine.ds_config=zero1"],
    "zero3": ["engine.name=deepspeed", "engine.ds_config=zero3"],
}
EVENTS, PARTICLES, EPOCHS = 13, 30, 4  # one event validates; 2 events a step: 24 steps
STEPS = range(7, 19)  # before which faults strike; two checkpoints are there from the first on
DELAY = 0.03  # s at most
HANG, LONGEST = 60, 600  # s
DEFAULT = Path(__file__).parents[1] / "docs" / "results" / "faults.json"


@dataclass(frozen=True)
class Outcome:
    """seconds: from the fault to the end of the last process. wrong: of the resumed run."""

    plan: Plan
    detected: bool
    hung: bool
    seconds: float
    again: int
    lost: int
    wrong: str


def plans(rounds: int, seed: int, faults: Sequence[str], engines: Sequence[str]) -> list[Plan]:
    """Faults in an order drawn anew each time that all have had their turn."""
    rng, order = random.Random(seed), list[str]()
    while len(order) < rounds:
        order += rng.sample(faults, len(faults))
    return [
        Plan(
            fault,
            engines[i % len(engines)],
            rng.choice(STEPS),
            rng.random() < 0.5,
            rng.uniform(0, DELAY),
            rng.randrange(2),
            rng.randrange(2**32),
        )
        for i, fault in enumerate(order[:rounds])
    ]


def make_graphs(folder: Path) -> Path:
    simulate_folder(folder / "events", range(EVENTS), PARTICLES, 0, None)
    command = ["-m", "bigtrk", "build", str(folder / "events"), str(folder / "graphs")]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return folder / "graphs"


def train_arguments(graphs: Path, run: Path, engine: str) -> list[str]:
    return [
        str(CONFIGURATION), f"data.train=[{graphs}]", "model.hidden=8", "model.layers=2",
        f"training.epochs={EPOCHS}", "training.events_per_step=2", "training.checkpoint_every=2",
        f"run.folder={run}", *ENGINES[engine],
    ]  # fmt: skip


def undisturbed(graphs: Path, run: Path, engine: str) -> Path:
    """A run to compare with.

    Raises:
        InputError: it did not end well.
    """
    log = run.with_suffix(".log")
    launched = Launched(TRAIN, train_arguments(graphs, run, engine), log)
    if not ended(launched, LONGEST) or launched.failed:
        raise InputError(f"{engine} does not train here:\n{tail(log)}")
    return run


def ended(launched: Launched, seconds: float) -> bool:
    """Whether it ended in time; it has in any case."""
    in_time = launched.wait(seconds)
    launched.end()
    return in_time


def play(plan: Plan, graphs: Path, folder: Path, whole: Path) -> Outcome | None:
    """A round; None if the training ended before its fault."""
    fault, run, log = FAULTS[plan.fault], folder / "run", folder / "disturbed.log"
    with mounted(run) if fault.mounted else nullcontext():
        arguments = train_arguments(graphs, run, plan.engine)
        launched = Launched(fault.script, arguments, log, BIGTRK_POISON=str(poison_of(run)))
        if not strike(launched, run, plan, fault):
            launched.end()
            return None
        start = time.monotonic()
        hung = not ended(launched, HANG)
        seconds = time.monotonic() - start
        fault.mend(run)
        detected = launched.failed and not hung and says(log, fault.says)
        if (run / "model.safetensors").exists():  # orphans may train to the end
            return Outcome(plan, detected, hung, seconds, 0, 0, differences(run, whole))
        damaged, good = damage(run, plan, fault)
        done = len(losses(run))
        wrong = resume(run, folder / "resumed.log") or differences(run, whole)
        detected = detected and says(folder / "resumed.log", damaged)
        begun = read_json(run / "run.json").get("resumed", [{"step": 0}])[-1]["step"]
        return Outcome(plan, detected, hung, seconds, done - begun, max(0, good - begun), wrong)


def strike(launched: Launched, run: Path, plan: Plan, fault: Fault) -> bool:
    """Strike when it is time; whether the training was still under way."""
    while not due(run, plan):
        if not launched.processes():
            return False
        time.sleep(POLL)
    time.sleep(plan.delay * (not plan.in_save))
    fault.strike(launched, run, plan)
    return not (run / "model.safetensors").exists()


def due(run: Path, plan: Plan) -> bool:
    saving = any((run / "checkpoints").glob(".step-*.tmp"))
    return len(losses(run)) >= plan.step and (saving or not plan.in_save)


def damage(run: Path, plan: Plan, fault: Fault) -> tuple[str, int]:
    """Damage a file of the newest checkpoint, if that is the fault: what a resumed run must say;
    the step of the newest good one.
    """
    folders = sorted((run / "checkpoints").glob("step-*"))
    if fault.damage is None:
        return "", step_of(folders[-1])
    rng = random.Random(plan.seed)
    path = rng.choice(sorted(folders[-1].iterdir()))
    fault.damage(path, rng)
    return f"{folders[-1].name} is damaged: {path.name}", step_of(folders[-2])


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def resume(run: Path, log: Path) -> str:
    """What went wrong, if anything."""
    launched = Launched(TRAIN, ["--resume", str(run)], log)
    if not ended(launched, LONGEST):
        return "the resumed run does not end"
    return f"the resumed run failed:\n{tail(log)}" if launched.failed else ""


def differences(run: Path, whole: Path) -> str:
    """Of a run from one that was left alone, in words."""
    if losses(run) != losses(whole):
        return "other losses"
    weights = [(folder / "model.safetensors").read_bytes() for folder in (run, whole)]
    return "" if weights[0] == weights[1] else "other weights"


def losses(run: Path) -> list[tuple[int, float]]:
    """Steps and their losses, of the whole lines of a record."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    records = [json.loads(line) for line in lines]
    return [(record["step"], record["loss"]) for record in records if record["kind"] == "step"]


def says(log: Path, what: str) -> bool:
    return re.search(what, log.read_text(errors="replace")) is not None


@contextmanager
def mounted(run: Path) -> Iterator[None]:
    """A small file system at `run` while the block runs."""
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(run)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(run)], check=True)


def mounts(folder: Path) -> bool:
    """Whether this user may mount."""
    try:
        with mounted(folder / "mounted"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {
        "rounds": len(outcomes),
        "undetected": sum(not outcome.detected for outcome in outcomes),
        "hangs": sum(outcome.hung for outcome in outcomes),
        "steps_lost": sum(outcome.lost for outcome in outcomes),
        "wrong": sum(bool(outcome.wrong) for outcome in outcomes),
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each fault; seconds are the longest until the last process ended."""
    columns = ("fault", "rounds", "detected", "steps lost", "again", "hang s", "wrong after")
    shown = Table(*columns, title="Faults", caption=f"{machine()['cpu']}")
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
    """The outcomes of `rounds`; one that came too late is played again."""
    graphs, whole = make_graphs(folder), dict[str, Path]()
    for i, plan in enumerate(rounds):
        if plan.engine not in whole:
            whole[plan.engine] = undisturbed(graphs, folder / plan.engine, plan.engine)
        outcome = None
        while outcome is None:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                outcome = play(plan, graphs, Path(place), whole[plan.engine])
        found = "detected" if outcome.detected else "hung" if outcome.hung else "not detected"
        moment = f"save after step {plan.step}" if plan.in_save else f"step {plan.step}"
        said = f"{found}, ended after {outcome.seconds:.1f} s; {outcome.again} steps again"
        say(f"{i + 1}: {plan.fault}, {plan.engine}, {moment}: {said} {outcome.wrong}")
        yield outcome


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=list(FAULTS), action="append", help="of these alone")
    parser.add_argument("--engine", choices=list(ENGINES), action="append", help="of these alone")
    parser.add_argument("--output", type=Path, default=DEFAULT)
    return parser.parse_args()


def main() -> None:
    """Exit status 1 unless all was detected, nothing hung and nothing was lost."""
    arguments = parse_arguments()
    faults = arguments.fault or list(FAULTS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not mounts(folder):
            left_out = [name for name in faults if FAULTS[name].mounted]
            say(f"left out, as this user may not mount file systems: {', '.join(left_out)}")
            faults = [name for name in faults if name not in left_out]
        rounds = plans(arguments.rounds, arguments.seed, faults, arguments.engine or list(ENGINES))
        outcomes = list(inject(rounds, folder))
    found = summary(outcomes)
    rows = [asdict(outcome) for outcome in outcomes]
    kept: dict[str, Any] = {"rounds": rows, "machine": machine(), "software": software()}
    write_json(arguments.output, {"summary": found, **kept})
    console.print(table(outcomes))
    say(f"written to {arguments.output}")
    print(json.dumps(found))
    raise SystemExit(any(found[name] for name in ("undetected", "hangs", "steps_lost", "wrong")))


if __name__ == "__main__":
    exit_on_bad_input("inject_faults.py", main)
