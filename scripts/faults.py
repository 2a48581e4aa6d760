"""The faults that scripts/inject_faults.py injects."""

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

import bigtrk
from launched import Launched, send

BLOCK = 64  # bytes
BALLAST = "ballast"
TRAIN = Path(bigtrk.__file__).parent / "train.py"
POISONED = Path(__file__).with_name("poisoned_training.py")


@dataclass(frozen=True)
class Plan:
    """A round. The fault strikes `delay` seconds after `step` steps, or in the save after them;
    rank: the one struck; seed: of what the fault itself draws.
    """

    fault: str
    engine: str
    step: int
    in_save: bool
    delay: float
    rank: int
    seed: int


@dataclass(frozen=True)
class Fault:
    """strike: at its moment, in a run folder. mend: before the run is resumed. says: what the
    disturbed run must print.

    damage: done to a file of the newest checkpoint, by its content, before the run is resumed.
    mounted: the run folder is a file system of its own. script: what is disturbed.
    """

    strike: Callable[[Launched, Path, Plan], None]
    mend: Callable[[Path], None] = lambda _: None
    says: str = ""
    damage: Callable[[Path, random.Random], None] | None = None
    mounted: bool = False
    script: Path = TRAIN


def kill_rank(launched: Launched, _: Path, plan: Plan) -> None:
    send(launched.rank(plan.rank), signal.SIGKILL)


def kill_all(launched: Launched, _: Path, __: Plan) -> None:
    send(launched.processes(), signal.SIGKILL)


def kill_launcher(launched: Launched, _: Path, __: Plan) -> None:
    send(launched.launcher, signal.SIGKILL)


def terminate_all(launched: Launched, _: Path, __: Plan) -> None:
    send(launched.processes(), signal.SIGTERM)


def stall_rank(launched: Launched, _: Path, plan: Plan) -> None:
    send(launched.rank(plan.rank), signal.SIGSTOP)


def hide_folder(_: Launched, run: Path, __: Plan) -> None:
    run.rename(run.with_name(f"{run.name}-hidden"))


def return_folder(run: Path) -> None:
    # The training may have begun another one.
    shutil.rmtree(run, ignore_errors=True)
    run.with_name(f"{run.name}-hidden").rename(run)


def forbid_writing(_: Launched, run: Path, __: Plan) -> None:
    # Root may write whatever permissions say, but not to what is mounted for reading. Refused
    # while a file is being written.
    while remount(run, "ro"):
        time.sleep(0.001)


def allow_writing(run: Path) -> None:
    remount(run, "rw")


def remount(run: Path, how: str) -> int:
    command = ["mount", "-o", f"remount,{how}", str(run)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def fill_disk(_: Launched, run: Path, __: Plan) -> None:
    # Old checkpoints that are removed make room again.
    end = time.monotonic() + 1
    with (run / BALLAST).open("wb", buffering=0) as ballast:
        while time.monotonic() < end:
            try:
                ballast.write(bytes(2**20))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def poison(_: Launched, run: Path, plan: Plan) -> None:
    poison_of(run).write_text(str(plan.rank))


def poison_of(run: Path) -> Path:
    """The file that scripts/poisoned_training.py waits for."""
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


FAULTS = {
    "kill -9 of a rank": Fault(kill_rank),
    "kill -9 of all": Fault(kill_all),
    "kill -9 of the launcher": Fault(kill_launcher),
    "SIGTERM to all": Fault(terminate_all),
    "bit flipped": Fault(kill_all, damage=flip_bit),
    "file cut": Fault(kill_all, damage=truncate),
    "block zeroed": Fault(kill_all, damage=zero_block),
    "file deleted": Fault(kill_all, damage=delete),
    "run folder gone": Fault(hide_folder, return_folder, says="No such file or directory"),
    "run folder read-only": Fault(
        forbid_writing, allow_writing, says="Read-only file system", mounted=True
    ),
    "disk full": Fault(fill_disk, empty_disk, says="No space left on device", mounted=True),
    "NaN in a rank's input": Fault(poison, says=r"edge \d+ has \w+ nan", script=POISONED),
    "rank stalled": Fault(stall_rank, says="stall"),
}
