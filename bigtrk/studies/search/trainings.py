"""Trainings of a search: their place on the host, their launcher, and each run folder followed
until its training ends.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

from bigtrk import shipped
from bigtrk.console import complain
from bigtrk.disk.files import open_to_append, unlinked
from bigtrk.disk.folder_lock import LockWatch
from bigtrk.errors import InputError, StoppedError
from bigtrk.launchers import PLACES
from bigtrk.machine import open_cores
from bigtrk.records.run_folder import METRICS, RUN, read_run_record
from bigtrk.studies.launch import LOG, on_cores, tail, torchrun_command, torchrun_environment
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.run_folder import remove_run
from bigtrk.user_code import code_options

DEVICES = "CUDA_VISIBLE_DEVICES"
SIGNALS = (signal.SIGTERM, signal.SIGINT)  # of clusters; Ctrl-C
# Launches in a row without progress, after which a trial has failed; and where the last launcher
# was killed, which may be for want of memory.
MOST_LAUNCHES, MOST_KILLED = 3, 6

State = Literal["running", "idle", "ended"]


@dataclass
class Asked:
    """The signal that has asked a searcher to end; "" if none has."""

    by: str = ""

    def check(self) -> None:
        """Raises StoppedError if a signal has asked."""
        if self.by:
            raise StoppedError(f"{self.by}: stopped; the same command goes on")


@contextmanager
def noting_signals() -> Iterator[Asked]:
    """Notes the first signal while the block runs; the second one ends the process."""
    asked = Asked()

    def take(number: int, _: object) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        asked.by = signal.Signals(number).name
        complain(f"{asked.by}: the trainings save; a second one ends at once")

    before = {one: signal.signal(one, take) for one in SIGNALS}
    try:
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@dataclass(frozen=True)
class HostPlace:
    """A share of a host: `cores` cores from the `first` on, and `devices`, if there are any."""

    first: int
    cores: int
    devices: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        return {DEVICES: ",".join(self.devices)} if self.devices else {}

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Starts a training as a process of this host; its output is appended to `log`."""
        # A session of its own: Ctrl-C is for the searcher, which asks the training to save.
        with open_to_append(log) as output, on_cores(self.cores, self.first):
            return subprocess.Popen(
                command,
                env={**environment, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def share_host(places: int, ranks: int, devices: Sequence[str]) -> list[HostPlace]:
    """Shares this process's cores, and the accelerators `devices`, among places of `ranks` ranks.

    Raises:
        InputError: there are fewer of them than places.
    """
    cores = open_cores()
    each, cores_each = len(devices) // places, cores // places
    if not cores_each or (devices and each < 1):
        there = f"{len(devices)} accelerators" if devices else f"{cores} cores"
        raise InputError(
            f"--at-once {places}: this host has {there} for {places} trials of {ranks} "
            f"rank{'s' if ranks > 1 else ''} each; lower it"
        )
    return [
        HostPlace(i * cores_each, cores_each, tuple(devices[i * each : (i + 1) * each]))
        for i in range(places)
    ]


def visible_devices() -> list[str]:
    """Lists the accelerators of this process, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = os.environ.get(DEVICES)
    if named is not None and torch.cuda.is_available():
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


@dataclass(frozen=True)
class Launcher:
    """The words of a command before a training's arguments. kind: "python" is a plain process;
    ranks: those that torchrun starts.
    """

    words: tuple[str, ...]
    kind: Literal["python", "torchrun", "other"]
    ranks: int = 1

    def environment(self) -> dict[str, str]:
        """Returns the environment of a launch."""
        if self.kind == "torchrun":
            return torchrun_environment(self.ranks)
        # A searcher's place among ranks is not its training's.
        dropped = PLACES if self.kind == "python" else ()
        return {name: value for name, value in os.environ.items() if name not in dropped}


def make_launcher(ranks: int, command: str | None) -> Launcher:
    """Returns the launcher of `ranks` ranks on this host: torchrun, or Python alone for one rank;
    or a command of the user's choice.

    Raises:
        InputError: the command is none.
    """
    if command is None and ranks == 1:
        return Launcher((sys.executable, str(shipped.TRAIN)), "python")
    if command is None:
        return Launcher(tuple(torchrun_command(ranks, shipped.TRAIN, [])), "torchrun", ranks)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--launcher {command}: is no command ({error}); correct it") from None
    if not words or not shutil.which(words[0]):
        raise InputError(
            f"--launcher {command}: no such program; name one that is installed, such as "
            '"srun --ntasks 8 python"'
        )
    return Launcher((*words, str(shipped.TRAIN)), "other")


@dataclass
class TrialRun:
    """A run folder, and the launch that this process made in it, if it made one.

    The folder alone says how far the training is, and its lock whether a process trains, so that
    any searcher can take it over. arguments: of a training that begins; changes: settings that
    replace those of a training that goes on; epochs: the last one to train, without it its own.
    """

    folder: Path
    arguments: Sequence[str]
    launcher: Launcher
    place: HostPlace
    changes: Sequence[str] = ()
    epochs: int | None = None
    _process: subprocess.Popen[bytes] | None = None
    _asked: bool = False
    _reached: list[int] = field(default_factory=list)
    _watch: LockWatch = field(init=False)

    def __post_init__(self) -> None:
        self._watch = LockWatch(self.folder)

    @property
    def state(self) -> State:
        """Returns whether a process trains, the training has ended well, or neither.

        Raises:
            InputError: the run's record or lock is damaged.
        """
        if self._process is not None and self._process.poll() is None:
            return "running"
        # Ranks outlive a launcher that was killed until they have saved.
        if self._watch.lives() is not False:
            return "running"
        return "ended" if self._has_ended() else "idle"

    def _has_ended(self) -> bool:
        record = read_run_record(self.folder) if (self.folder / RUN).exists() else None
        if record is None or record.ended is None:
            return False
        training = record.config.get("training")
        trained = training.get("epochs") if isinstance(training, dict) else None
        return self.epochs in (None, trained)

    @property
    def has_failed(self) -> bool:
        """Whether the last launches all ended at the step where they began."""
        status = self._process.poll() if self._process is not None else None
        was_killed = status is not None and status < 0
        return self._in_vain >= (MOST_KILLED if was_killed else MOST_LAUNCHES)

    @property
    def failure(self) -> str:
        """Returns how a training that has failed ended, with the line of its log that says why."""
        lines = tail(self.folder / LOG) if (self.folder / LOG).exists() else []
        said = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
        return f"{self._in_vain} launches came no further; the last: {said[-1].strip()}"

    @property
    def _in_vain(self) -> int:
        """Counts the last launches that ended where they had begun."""
        steps = self._steps()
        return sum(1 for _ in takewhile(steps.__eq__, reversed(self._reached)))

    def _steps(self) -> int:
        """Returns the steps of the newest checkpoint; -1 where there is none."""
        try:
            return last_good(self.folder).checkpoint.progress.step
        except InputError:
            return -1

    def launch(self) -> None:
        """Starts the training, from its newest checkpoint if it has one.

        Raises:
            InputError: another process writes the folder that is to be removed, or the disk
                refuses.
        """
        reached = self._steps()
        if reached >= 0:
            arguments = ["--resume", str(self.folder), *self.changes, *code_options()]
        else:
            if (self.folder / RUN).exists() or (self.folder / METRICS).exists():
                remove_run(self.folder)  # it was killed before its first checkpoint
            arguments = list(self.arguments)
        self._reached.append(reached)
        self._asked = False
        unlinked(self.folder).mkdir(parents=True, exist_ok=True)
        self._process = self.place.start(
            [*self.launcher.words, *arguments], self.launcher.environment(), self.folder / LOG
        )

    def ask_to_stop(self) -> bool:
        """Asks the training to save and end, once; returns False where it cannot be reached."""
        if self._asked:
            return True
        owner = self._watch.owner
        if owner is not None and owner.has_ended() is False:
            with suppress(ProcessLookupError):
                os.kill(owner.process, signal.SIGTERM)  # one of the ranks, which agree on it
            self._asked = True
        elif self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._asked = True
        return self._asked
