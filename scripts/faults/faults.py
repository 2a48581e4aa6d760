"""The faults that scripts/faults/inject_faults.py injects."""

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bigtrk.shipped import TRAIN
from scripts.faults.training_process import Launch, send

BLOCK = 64  # bytes
BALLAST = "ballast"
POISONED = Path(__file__).with_name("poisoned_training.py")


@dataclass(frozen=True)
class Plan:
    """A round on `ranks` ranks. The fault strikes `delay` seconds after `step` steps, or in the
    save after them; rank: the one struck; seed: that of the fault's own draws.
    """

    fault: str
    engine: str
    ranks: int
    step: int
    in_save: bool
    delay: float
    rank: int
    seed: int


@dataclass(frozen=True)
class Fault:
    """A fault. strike: at its moment, in a run folder. mend: before the run is resumed. says: what
    the disturbed run must print. saves: it must also save, so that no step is trained again.

    damage: done to a file of `store` (the newest checkpoint, or a data folder) before the run is
    resumed. mounted: the run folder is a file system of its own. script: the program disturbed,
    with `settings`.
    """

    strike: Callable[[Launch, Path, Plan], None]
    mend: Callable[[Path], None] = lambda _: None
    says: str = ""
    saves: bool = False
    damage: Callable[[Path, random.Random], None] | None = None
    store: Literal["checkpoint", "graphs", "sectors"] = "checkpoint"
    mounted: bool = False
    script: Path = TRAIN
    settings: tuple[str, ...] = ()


def kill_rank(launched: Launch, _: Path, plan: Plan) -> None:
    send(launched.rank(plan.rank), signal.SIGKILL)


def kill_all(launched: Launch, _: Path, __: Plan) -> None:
    send(launched.processes(), signal.SIGKILL)


def kill_launcher(launched: Launch, _: Path, __: Plan) -> None:
    send(launched.launcher, signal.SIGKILL)


def terminate_all(launched: Launch, _: Path, __: Plan) -> None:
    send(launched.processes(), signal.SIGTERM)


def warn_rank(launched: Launch, _: Path, plan: Plan) -> None:
    send(launched.rank(plan.rank), signal.SIGUSR1)


def stall_rank(launched: Launch, _: Path, plan: Plan) -> None:
    send(launched.rank(plan.rank), signal.SIGSTOP)


def hide_folder(_: Launch, run: Path, __: Plan) -> None:
    run.rename(run.with_name(f"{run.name}-hidden"))


def return_folder(run: Path) -> None:
    # The training may have begun another one.
    shutil.rmtree(run, ignore_errors=True)
    run.with_name(f"{run.name}-hidden").rename(run)


def forbid_writing(_: Launch, run: Path, __: Plan) -> None:
    # Root may write whatever permissions say, but not to what is mounted for reading. It is refused
    # while a file is being written.
    while remount(run, "ro"):
        time.sleep(0.001)


def allow_writing(run: Path) -> None:
    remount(run, "rw")


def remount(run: Path, how: str) -> int:
    command = ["mount", "-o", f"remount,{how}", str(run)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def fill_disk(_: Launch, run: Path, __: Plan) -> None:
    # Old checkpoints that are removed make room again.
    end = time.monotonic() + 1
    with (run / BALLAST).open("wb", buffering=0) as ballast:
        while time.monotonic() < end:
            try:
                ballast.write(bytes(2**20))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def poison(kind: str) -> Callable[[Launch, Path, Plan], None]:
    """Poisons a rank; kinds are those of scripts/faults/poisoned_training.py."""

    def strike(_: Launch, run: Path, plan: Plan) -> None:
        rank = plan.rank % (2 if kind in ("input", "gradient") else 3)  # the third has no edges
        poison_of(run).write_text(f"{kind} {rank}")

    return strike


def poison_of(run: Path) -> Path:
    """Returns the file that scripts/faults/poisoned_training.py waits for."""
    return run.with_name("poison")


def empty_disk(run: Path) -> None:
    (run / BALLAST).unlink()


def flip_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def zero_block(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    nonzero = [i for i, value in enumerate(content) if value]
    start = rng.choice(nonzero) // BLOCK * BLOCK
    content[start : start + BLOCK] = bytes(len(content[start : start + BLOCK]))
    path.write_bytes(content)


def delete(path: Path, _: random.Random) -> None:
    path.unlink()


DAMAGES = {
    "bit flipped": flip_bit,
    "file cut": truncate,
    "block zeroed": zero_block,
    "file deleted": delete,
}
STOPPED = r"stopped after step \d+, saved"
NOT_FINITE = r"became (nan|inf|NaN or)|(is|are) (not finite|NaN or)"

FAULTS = {
    "kill -9 of a rank": Fault(kill_rank),
    "kill -9 of all": Fault(kill_all),
    "kill -9 of the launcher": Fault(
        kill_launcher, says=f"its launcher has ended.*{STOPPED}", saves=True
    ),
    "SIGTERM to all": Fault(terminate_all, says=f"SIGTERM.*{STOPPED}", saves=True),
    "SIGUSR1 to a rank": Fault(warn_rank, says=f"SIGUSR1.*{STOPPED}", saves=True),
    **{
        f"{store}: {name}": Fault(kill_all, damage=damage, store=store)
        for store in ("checkpoint", "graphs", "sectors")
        for name, damage in DAMAGES.items()
    },
    "run folder gone": Fault(hide_folder, return_folder, says="No such file or directory"),
    "run folder read-only": Fault(
        forbid_writing, allow_writing, says="Read-only file system", mounted=True
    ),
    "disk full": Fault(fill_disk, empty_disk, says="No space left on device", mounted=True),
    "NaN in a rank's input": Fault(
        poison("input"), says=r"(edge|node) \d+ has \w+ = nan", script=POISONED
    ),
    "NaN in a rank's loss": Fault(poison("loss"), says=NOT_FINITE, script=POISONED),
    "infinity in a rank's gradient": Fault(poison("gradient"), says=NOT_FINITE, script=POISONED),
    "memory of a rank": Fault(
        poison("memory"), says=r"rank \d ran out of memory in 'step \d+, loss'", script=POISONED
    ),
    "rank stopped": Fault(stall_rank, says=r"rank \d has been silent for 30 s, last seen in"),
    "rank stuck": Fault(
        poison("stuck"),
        says=r"rank \d has not moved for 10 s, in",
        script=POISONED,
        settings=("run.stalled_seconds=10",),
    ),
}
