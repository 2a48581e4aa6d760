"""The training of a trial: begun, gone on with, and ended, whoever started it."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Literal

from bigtrk.config import parse
from bigtrk.disk.files import unlinked
from bigtrk.disk.folder_lock import LockWatch
from bigtrk.disk.lock_owner import Owner
from bigtrk.errors import InputError
from bigtrk.records.record import Record
from bigtrk.records.run_folder import METRICS, RUN, read_run_record
from bigtrk.studies.launch import tail
from bigtrk.studies.search.launcher import Launcher
from bigtrk.studies.search.places import Place, Process
from bigtrk.training.checkpoint.folder import last_good
from bigtrk.training.run_folder import remove_run
from bigtrk.user_code import code_options

LOG = "train.log"
# In a row that came no further; and where the last one's launcher was killed, which says less of
# the settings. That of a single rank may have been killed for want of memory.
MOST_LAUNCHES, MOST_KILLED = 3, 6

State = Literal["running", "idle", "ended"]


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
    place: Place
    changes: Sequence[str] = ()
    epochs: int | None = None
    _process: Process | None = None
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
