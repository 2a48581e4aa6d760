"""The rounds of a population on disk: decisions, values, and the checkpoints after each.

    OUT/rounds/0002/trial0003/decision.json    what the trial trains in the round
    OUT/rounds/0002/trial0003/value.json       the metric after it
    OUT/rounds/0002/trial0003/checkpoints/     as the run had them then, for who goes on from it

Each is either absent or whole, and says the same whoever writes it: so whatever is killed, another
process goes on.
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from bigtrk.disk.files import disk_errors, unlinked
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.disk.folders import whole_folder
from bigtrk.records.record import FileRecord, Kind, read_record, write_record
from bigtrk.records.run_folder import RUN
from bigtrk.records.search import DECISION, VALUE, DecisionRecord, ValueRecord, trial_name
from bigtrk.training.run_folder import CHECKPOINTS, hold, record_end

TAKEN = "taken"  # marks that a trial has the checkpoints that its decision names


@dataclass(frozen=True)
class Rounds:
    """The rounds of the population of a search, in the folder `root`. Each file is read once, as it
    never says anything else.
    """

    root: Path
    _known: dict[Path, FileRecord] = field(default_factory=dict)

    def folder(self, number: int, trial: int) -> Path:
        """Returns the folder of a trial's round."""
        return self.root / f"{number:04d}" / trial_name(trial)

    def decision(self, number: int, trial: int) -> DecisionRecord | None:
        """Reads what a trial trains in a round; None if it is not decided yet.

        Raises:
            InputError: the file is damaged.
        """
        return self._read(DecisionRecord, self.folder(number, trial) / DECISION)

    def write_decision(self, number: int, trial: int, decision: DecisionRecord) -> None:
        """Writes down what a trial trains in a round.

        Raises:
            InputError: the disk refuses.
        """
        with disk_errors():
            write_record(self.folder(number, trial) / DECISION, decision)

    def value(self, number: int, trial: int) -> ValueRecord | None:
        """Reads what a trial came to in a round; None if it has not ended it.

        Raises:
            InputError: the file is damaged.
        """
        return self._read(ValueRecord, self.folder(number, trial) / VALUE)

    def end(self, number: int, trial: int, run: Path, value: ValueRecord) -> None:
        """Ends a trial's round: keeps the run's checkpoints, unless it failed, and its value.

        Raises:
            InputError: the disk refuses.
        """
        with disk_errors():
            if value.value is not None:
                _copy(run / CHECKPOINTS, self.folder(number, trial) / CHECKPOINTS)
            write_record(self.folder(number, trial) / VALUE, value)

    def take_over(self, number: int, trial: int, run: Path, decision: DecisionRecord) -> None:
        """Gives a run the checkpoints that the decision for its round names, once.

        Raises:
            HeldError: a training of this run is going on.
            InputError: the disk refuses.
        """
        marker = self.folder(number, trial) / TAKEN
        if decision.source is None or decision.source_round is None or marker.exists():
            return
        source = self.folder(decision.source_round, decision.source) / CHECKPOINTS
        with FolderLock() as lock, disk_errors():
            hold(lock, run)
            _copy(source, run / CHECKPOINTS)
            if (run / RUN).exists():
                record_end(run, None)  # of the round before: the run goes on from elsewhere
            marker.touch()

    def drop(self, before: int, trial: int) -> None:
        """Drops the checkpoints of a trial's rounds before that of this number.

        Raises:
            InputError: the disk refuses, or one is a symbolic link.
        """
        with disk_errors():
            for number in range(max(0, before)):
                shutil.rmtree(unlinked(self.folder(number, trial) / CHECKPOINTS), True)

    def _read(self, kind: type[Kind], path: Path) -> Kind | None:
        if path not in self._known:
            if not path.exists():
                return None
            self._known[path] = read_record(kind, path)
        found = self._known[path]
        assert isinstance(found, kind)
        return found


def _copy(checkpoints: Path, place: Path) -> None:
    """Copies checkpoints to a place, where they replace what is there; as links to the same files,
    which are never written again, where the file system has such.
    """
    with whole_folder(place) as new:
        for path in sorted(checkpoints.iterdir()):
            if path.name.startswith("."):  # half-written
                continue
            if path.is_dir():
                shutil.copytree(path, new / path.name, copy_function=_link)
            else:
                shutil.copyfile(path, new / path.name)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
