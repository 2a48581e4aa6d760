"""Trainings of a search: where they run, what starts them, what they have recorded."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

from bigtrk import shipped
from bigtrk.config import parse
from bigtrk.disk.files import open_to_append, parse_json, unlinked
from bigtrk.disk.folder_lock import LockWatch, Owner
from bigtrk.errors import InputError, reason
from bigtrk.launchers import PLACES
from bigtrk.machine import open_cores
from bigtrk.records.metrics import EpochRecord
from bigtrk.records.record import Record
from bigtrk.records.run_folder import EPOCH_LINE, METRICS, RUN, read_run_record
from bigtrk.studies.launch import on_cores, tail, torchrun_command, torchrun_environment
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.run_folder import remove_run
from bigtrk.user_code import code_options

DEVICES = "CUDA_VISIBLE_DEVICES"
LOG = "train.log"
# In a row that came no further; and where the last one's launcher was killed, which says less of
# the settings. That of a single rank may have been killed for want of memory.
MOST_LAUNCHES, MOST_KILLED = 3, 6

State = Literal["running", "idle", "ended"]


@dataclass(frozen=True)
class HostPlace:
    """A share of a host: so many `cores` from the `first` on, and `devices`, if there are any."""

    first: int
    cores: int
    devices: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Returns what a training's environment has beside this process's."""
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
    """Shares this process's cores, and the accelerators `devices`, among so many places of `ranks`
    ranks each.

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
    """The words of a command before a training's arguments; kind: what it starts them by, "python"
    being a plain process; ranks: how many torchrun starts.
    """

    words: tuple[str, ...]
    kind: Literal["python", "torchrun", "other"]
    ranks: int = 1

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command that trains with these arguments."""
        return [*self.words, *arguments]

    def environment(self) -> dict[str, str]:
        """Returns the environment of a launch."""
        if self.kind == "torchrun":
            return torchrun_environment(self.ranks)
        # A searcher's place among ranks is not its training's.
        dropped = PLACES if self.kind == "python" else ()
        return {name: value for name, value in os.environ.items() if name not in dropped}


def make_launcher(ranks: int, command: str | None) -> Launcher:
    """Returns the launcher for so many ranks of this host: torchrun, or Python alone for one rank;
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
    if not words:
        raise InputError('--launcher: name a command, such as "srun --ntasks 8 python"')
    if not shutil.which(words[0]):
        raise InputError(f"--launcher {command}: no such program {words[0]}; install or correct it")
    return Launcher((*words, str(shipped.TRAIN)), "other")


class _Training(Record):
    epochs: int


class _Epochs(Record):
    training: _Training


@dataclass
class TrialRun:
    """A run folder, and the launch that this process made in it, if it made one.

    The folder alone says how far the training is, and its lock whether somebody trains: so another
    process can see to it. arguments: of a training that begins; changes: settings that one which
    goes on has instead of its own; epochs: those that it trains in all, its own without them.
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
        """Says whether somebody trains, the training has ended well, or neither.

        Raises:
            InputError: the run's record or lock is damaged.
        """
        if self._process is not None and self._process.poll() is None:
            return "running"
        # Ranks outlive a launcher that was killed until they have saved.
        if self._watch.lives() is not False:
            return "running"
        return "ended" if has_ended(self.folder, self.epochs) else "idle"

    @property
    def goes_nowhere(self) -> bool:
        """Says whether the last launches all ended where the ones before had come to."""
        status = self._process.poll() if self._process is not None else None
        was_killed = status is not None and status < 0
        return self._in_vain >= (MOST_KILLED if was_killed else MOST_LAUNCHES)

    @property
    def failure(self) -> str:
        """Says how a training that goes nowhere ended."""
        return f"{self._in_vain} launches came no further; the last: {self._last_words()}"

    @property
    def _in_vain(self) -> int:
        """Counts the last launches that ended where they had begun."""
        steps = self._steps()
        return sum(1 for _ in takewhile(steps.__eq__, reversed(self._reached)))

    def launch(self) -> None:
        """Starts the training, from its newest checkpoint if it has one.

        Raises:
            InputError: what is to be removed is being written, or the disk refuses.
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
            self.launcher.command(arguments), self.launcher.environment(), self.folder / LOG
        )

    def ask_to_stop(self) -> bool:
        """Asks the training to save and end, once; returns False where it cannot be reached."""
        if self._asked:
            return True
        owner = self._watch.owner
        if owner is not None and owner.has_ended() is False:
            _send(owner)  # of the ranks, which agree on it
            self._asked = True
        elif self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._asked = True
        return self._asked

    def _last_words(self) -> str:
        """Returns the line of the training's output that says why it ended."""
        lines = tail(self.folder / LOG) if (self.folder / LOG).exists() else []
        said = [line for line in lines if "error" in line.lower()] or lines
        return said[-1].strip() if said else "it said nothing"

    def _steps(self) -> int:
        try:
            return last_good(self.folder).checkpoint.progress.step
        except InputError:
            return -1


def has_ended(run: Path, epochs: int | None = None) -> bool:
    """Says whether a training has come to its end, that of so many epochs if they are given, and
    written its model.
    """
    record = read_run_record(run) if (run / RUN).exists() else None
    if record is None or record.ended is None:
        return False
    return epochs is None or parse(_Epochs, record.config, str(run / RUN)).training.epochs == epochs


def _send(owner: Owner) -> None:
    try:
        os.kill(owner.process, signal.SIGTERM)
    except ProcessLookupError:
        return


class NewEpochs:
    """Reads what a run has added to its `metrics.jsonl` since the last look."""

    def __init__(self, run: Path) -> None:
        self._path = run / METRICS
        self._file: int | None = None
        self._read = 0
        self.last = -1  # the latest epoch that was returned, counted from 0

    def look(self) -> list[EpochRecord]:
        """Returns the epochs that were not returned yet, in their order. What a resumed run trains
        again is not returned again.

        Raises:
            InputError: a line is broken.
        """
        found = [epoch for epoch in map(self._parsed, self._lines()) if epoch.epoch > self.last]
        self.last = max([self.last, *(epoch.epoch for epoch in found)])
        return found

    def _lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as handle:
                file = os.fstat(handle.fileno()).st_ino
                if file != self._file:  # a resumed run has written it anew
                    self._file, self._read = file, 0
                handle.seek(self._read)
                whole = handle.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read += len(whole) + bool(whole)
        return [line for line in whole.split(b"\n") if EPOCH_LINE in line]

    def _parsed(self, line: bytes) -> EpochRecord:
        try:
            content = parse_json(line.decode())
        except ValueError as error:
            raise InputError(f"{self._path}: not JSON ({reason(error)})") from None
        return parse(EpochRecord, content, str(self._path))
