"""A round of scripts/inject_faults.py: train, strike, resume, compare with a run left alone."""

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bigtrk.errors import InputError
from bigtrk.events.production import simulate_folder
from bigtrk.files import read_json
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
