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
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bigtrk.console import console, exit_on_bad_input, say
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.machine import machine
from bigtrk.shipped import DEFAULT as CONFIGURATION
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import show_end
from scripts.faults.faults import FAULTS, Fault, Plan, poison_of
from scripts.faults.training_process import POLL, Launch
from scripts.results import Results, add_options

ENGINES = {
    "ddp": ["engine.name=ddp"],
    "coalesced": ["engine.name=ddp", "engine.coalesced=true"],
    "fsdp2": ["engine.name=fsdp2"],
    "zero1": ["engine.name=deepspeed", "engine.ds_config=zero1"],
    "zero3": ["engine.name=deepspeed", "engine.ds_config=zero3"],
}
EVENTS, PARTICLES, EPOCHS = 13, 30, 4  # one event validates; 2 events a step: 24 steps
STEPS = range(7, 19)  # before which faults strike; two checkpoints are there from the first on
DELAY = 0.03  # s at most
HANG, LONGEST = 60, 600  # s


@dataclass(frozen=True)
class Outcome:
    """A round's outcome. seconds: from the fault to the end of the last process. wrong: what the
    resumed run got wrong, "" if nothing.
    """

    plan: Plan
    detected: bool
    hung: bool
    seconds: float
    again: int
    lost: int
    wrong: str


def make_data(folder: Path) -> Path:
    """Makes half of the events whole in `graphs`, half cut in two in `sectors`."""
    half = EVENTS // 2
    for name, events in (("whole", range(half)), ("cut", range(half, EVENTS))):
        simulate_folder(folder / "events" / name, events, PARTICLES, 0, None)
    run_quietly("bigtrk", "build", folder / "events/whole", folder / "graphs")
    run_quietly("bigtrk", "build", folder / "events/cut", folder / "to-cut")
    run_quietly("partition", folder / "to-cut", folder / "sectors", "--parts", "2")
    return folder


def run_quietly(module: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


def train_arguments(data: Path, run: Path, engine: str) -> list[str]:
    return [
        str(CONFIGURATION), f"data.train=[{data / 'graphs'},{data / 'sectors'}]",
        "model.hidden=8", "model.layers=2", f"training.epochs={EPOCHS}",
        "training.events_per_step=2", "training.checkpoint_every=2", f"run.folder={run}",
        *ENGINES[engine],
    ]  # fmt: skip


def undisturbed(data: Path, run: Path, engine: str, ranks: int) -> Path:
    """Trains a run to compare with; raises InputError if it did not end well."""
    log = run.with_suffix(".log")
    if not succeeds(train_arguments(data, run, engine), log, ranks):
        show_end(log)
        raise InputError(f"{engine} does not train on {ranks} ranks here: above is why")
    return run


def succeeds(arguments: Sequence[str], log: Path, ranks: int) -> bool:
    """Whether a training ends well, and in time."""
    with Launch(TRAIN, arguments, log, ranks) as launched:
        return launched.wait(LONGEST) and not launched.failed


def play(plan: Plan, data: Path, folder: Path, whole: Path) -> Outcome | None:
    """Plays a round; None if the training ended before its fault."""
    fault, run = FAULTS[plan.fault], folder / "run"
    with mounted(run) if fault.mounted else nullcontext():
        disturbed = disturb(plan, data, run, folder / "disturbed.log")
        if disturbed is None:
            return None
        detected, seconds = disturbed
        hung = seconds >= HANG
        if (run / "model.safetensors").exists():  # it trained to the end all the same
            return Outcome(plan, detected, hung, seconds, 0, 0, differences(run, whole))
        resumed, good = folder / "resumed.log", newest(run)
        if fault.store != "checkpoint":
            detected = detected and refuses_damage(plan, data / fault.store, run, resumed)
        elif fault.damage:
            said, good = damage_checkpoint(plan, run), newest(run, 1)
        done = len(losses(run))
        wrong = resume(run, resumed, plan.ranks) or differences(run, whole)
        if fault.damage and fault.store == "checkpoint":
            detected = detected and says(resumed, said)
        begun = read_json(run / "run.json").get("resumed", [{"step": 0}])[-1]["step"]
        lost = done - begun if fault.saves else max(0, good - begun)
        return Outcome(plan, detected, hung, seconds, done - begun, lost, wrong)


def disturb(plan: Plan, data: Path, run: Path, log: Path) -> tuple[bool, float] | None:
    """Trains, strikes and waits; returns whether it failed saying why, and within what seconds."""
    fault = FAULTS[plan.fault]
    arguments = [*train_arguments(data, run, plan.engine), *fault.settings]
    poisoned = {"BIGTRK_POISON": str(poison_of(run))}
    with Launch(fault.script, arguments, log, plan.ranks, **poisoned) as launched:
        if not strike(launched, run, plan, fault):
            return None
        start = time.monotonic()
        in_time = launched.wait(HANG)
        seconds = time.monotonic() - start
    fault.mend(run)
    detected = in_time and launched.failed and says(log, fault.says)
    if not detected:
        show_end(log)
    return detected, seconds


def strike(launched: Launch, run: Path, plan: Plan, fault: Fault) -> bool:
    """Strikes when it is time; says whether the training was still under way."""
    while not due(run, plan):
        if launched.ended:
            return False
        time.sleep(POLL)
    time.sleep(plan.delay * (not plan.in_save))
    fault.strike(launched, run, plan)
    return not (run / "model.safetensors").exists()


def due(run: Path, plan: Plan) -> bool:
    saving = any((run / "checkpoints").glob(".step-*.tmp"))
    return len(losses(run)) >= plan.step and (saving or not plan.in_save)


def damage_checkpoint(plan: Plan, run: Path) -> str:
    """Damages a file of the newest checkpoint; returns what a resumed run must say."""
    folder = checkpoints(run)[-1]
    return f"{folder.name} is damaged: {damage(plan, folder).name}"


def refuses_damage(plan: Plan, store: Path, run: Path, log: Path) -> bool:
    """Whether a resumed run names the damaged file of a data folder, which is then mended."""
    whole = {path: path.read_bytes() for path in store.iterdir()}
    path = damage(plan, store)
    try:
        named = f"{re.escape(str(store))}.*{re.escape(path.name)}"
        return not succeeds(["--resume", str(run)], log, plan.ranks) and says(log, named)
    finally:
        path.write_bytes(whole[path])


def damage(plan: Plan, folder: Path) -> Path:
    """Damages a file of `folder` as planned; returns which one."""
    do, rng = FAULTS[plan.fault].damage, random.Random(plan.seed)
    assert do is not None
    # Other files there say how the data were made, and are not read.
    path = rng.choice(sorted([folder / "manifest.json", *folder.glob("*.safetensors")]))
    do(path, rng)
    return path


def checkpoints(run: Path) -> list[Path]:
    """Lists checkpoints, oldest first."""
    return sorted((run / "checkpoints").glob("step-*"))


def newest(run: Path, but: int = 0) -> int:
    """Returns the step of the newest checkpoint, or of the one `but` before it."""
    return int(checkpoints(run)[-1 - but].name.removeprefix("step-"))


def resume(run: Path, log: Path, ranks: int) -> str:
    """Resumes a run; returns what went wrong, if anything."""
    if succeeds(["--resume", str(run)], log, ranks):
        return ""
    show_end(log)
    return "the resumed run failed"


def differences(run: Path, whole: Path) -> str:
    """Names the difference of a run from one that was left alone."""
    if losses(run) != losses(whole):
        return "other losses"
    weights = [(folder / "model.safetensors").read_bytes() for folder in (run, whole)]
    return "" if weights[0] == weights[1] else "other weights"


def losses(run: Path) -> list[tuple[int, float]]:
    """Lists steps and their losses, of the whole lines of a record."""
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
    """Mounts a small file system at `run` while the block runs."""
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
    """Lists the faults that this user can inject; raises InputError if none is left."""
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
