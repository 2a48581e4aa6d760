"""A round of inject_faults.py: it trains, strikes, resumes, and compares with a run left alone."""

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.shipped import TRAIN
from bigtrk.studies.launch import show_end
from bigtrk.train import DEFAULT as CONFIGURATION
from scripts.faults.faults import FAULTS, Fault, Plan, poison_of
from scripts.faults.training_process import POLL, Launch

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
    """Trains a run to compare with.

    Raises:
        InputError: it did not end well.
    """
    log = run.with_suffix(".log")
    if not succeeds(train_arguments(data, run, engine), log, ranks):
        show_end(log)
        raise InputError(f"{engine} does not train on {ranks} ranks here: above is why")
    return run


def succeeds(arguments: Sequence[str], log: Path, ranks: int) -> bool:
    """Says whether a training ends well, and in time."""
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
    """Says whether a resumed run names the damaged file of a data folder, which is then mended."""
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
    """Returns the step of the newest checkpoint but so many."""
    return int(checkpoints(run)[-1 - but].name.removeprefix("step-"))


def resume(run: Path, log: Path, ranks: int) -> str:
    """Resumes a run; returns what went wrong, if anything."""
    if succeeds(["--resume", str(run)], log, ranks):
        return ""
    show_end(log)
    return "the resumed run failed"


def differences(run: Path, whole: Path) -> str:
    """Says how a run differs from one that was left alone."""
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
    """Says whether this user may mount."""
    try:
        with mounted(folder / "mounted"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
