"""Trainings as programs of their own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bigtrk.console import complain, say
from bigtrk.disk.files import open_to_append, unlinked
from bigtrk.errors import InputError
from bigtrk.records.run_folder import read_run_record
from bigtrk.training.checkpoint.folder import last_good

LOG = "train.log"  # in a run folder
_TAIL = 8
_EPOCH = re.compile(r"epoch \d+/\d+ +train loss")
# torchrun's own report of a failed rank begins with this.
_REPORT = re.compile(r"torch[/.]distributed[/.]elastic|^Traceback .*torchrun")


def torchrun_command(ranks: int, script: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `script` on `ranks` ranks of this host."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*command, f"--nproc-per-node={ranks}", str(script), *arguments]


def torchrun_environment(ranks: int) -> dict[str, str]:
    """Returns an environment in which torchrun does not warn that it sets OMP_NUM_THREADS to 1,
    which it does for several ranks where the user has not; each rank sets its own threads then.

    A single rank would take a 1 for the user's choice, and compute on one core.
    """
    quiet = {"OMP_NUM_THREADS": "1"} if ranks > 1 else {}
    return {**quiet, **os.environ}


@contextmanager
def on_cores(number: int, first: int = 0) -> Iterator[None]:
    """Keeps programs started in the block to `number` cores of this process, from the `first` on;
    to all it has where these are fewer.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[first : first + number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def resumable(run: Path) -> bool:
    """Whether a run can go on: it has a good checkpoint, and has not written its model."""
    try:
        last_good(run)
    except InputError:
        return False
    return read_run_record(run).ended is None


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the block as an exception does, so that what was started is ended, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def train_logged(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    """Runs a training; its output goes to the end of `log`, its epochs are also shown. Ctrl-C and
    SIGTERM reach it, and it may save before this returns.

    Raises:
        InputError: the training failed; the end of its output is on stderr by then. Or `log` is a
            symbolic link, or its folder is one.
    """
    unlinked(log.parent).mkdir(parents=True, exist_ok=True)
    with (
        open_to_append(log) as written,
        ended_by_sigterm(),
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as training,
    ):
        assert training.stdout is not None
        try:
            for line in training.stdout:
                written.write(line)
                written.flush()
                if _EPOCH.match(line):
                    say(f"  {line.strip()}")
        except BaseException:
            training.terminate()
            raise
    if training.returncode:
        show_end(log)
        raise InputError(
            f"{log.parent.name}: the training ended with status {training.returncode}; above is "
            f"the end of {log}"
        )


def show_end(log: Path) -> None:
    """Prints the last lines of a log on stderr."""
    for line in tail(log):
        complain(f"  {line}")


def tail(log: Path) -> list[str]:
    """Returns a log's last lines before torchrun's own report, which does not name the cause."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    end = next((i for i, line in enumerate(lines) if _REPORT.search(line)), len(lines))
    return lines[:end][-_TAIL:]
