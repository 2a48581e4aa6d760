"""A searcher: it draws parameter sets, trains them, prunes, and takes over what others left.

Several searchers may work on one search, on as many hosts. Whoever sees to a trial holds its
claim, a folder with a lock: a searcher that was killed loses it, at once on its own host, elsewhere
after a minute without a sign of life. The trial's training may have outlived it, or been killed,
too: the run folder and its own lock tell.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bigtrk.console import complain, say
from bigtrk.disk.folder_lock import FolderLock, HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import EpochRecord, metric_of
from bigtrk.records.run_folder import read_epochs
from bigtrk.records.search import trial_name
from bigtrk.studies.search.claims import Claims
from bigtrk.studies.search.launcher import Launcher
from bigtrk.studies.search.new_epochs import NewEpochs
from bigtrk.studies.search.places import Place
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.stopping import noting_signals
from bigtrk.studies.search.study import SharedStudy
from bigtrk.studies.search.trial_run import TrialRun

LOOK = 0.5  # s between two looks at a training


@dataclass
class _Claimed:
    """A trial that this searcher sees to."""

    number: int
    run: TrialRun
    epochs: NewEpochs
    claim: FolderLock
    pruned: bool = False


@dataclass
class Searcher:
    """Sees to as many trials at once as there are `places`, until `trials` have been drawn and none
    is left that nobody sees to.
    """

    search: Search
    study: SharedStudy
    places: Sequence[Place]
    trials: int
    launcher: Launcher
    _seen_to: list[_Claimed] = field(default_factory=list)
    _claims: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._claims = Claims(self.search.claims)

    def run(self) -> None:
        """Searches.

        Raises:
            StoppedError: a signal asked for it; the trainings have saved.
            InputError: a record or the study is damaged, or the disk refuses.
        """
        with noting_signals() as asked:
            try:
                while not asked.by and self._is_work_left():
                    for claimed in list(self._seen_to):
                        self._look_at(claimed)
                    time.sleep(LOOK)
            finally:
                self._leave()
        asked.check()

    def _is_work_left(self) -> bool:
        return self._fill() or bool(self._seen_to) or self._others_are_unknown()

    def _fill(self) -> bool:
        """Gives each free place a trial; returns False if there is none left to be given one."""
        while len(self._seen_to) < len(self.places):
            number = self._abandoned()
            if number is None:
                number = self.study.draw(self.trials)
            if number is None:
                return False
            self._claim(number)
        return True

    def _abandoned(self) -> int | None:
        """Returns a trial that has not ended and nobody sees to, if there is one."""
        own = {claimed.number for claimed in self._seen_to}
        for number in self.study.running():
            if number not in own and self._claims.seen_to(trial_name(number)) is False:
                return number
        return None

    def _others_are_unknown(self) -> bool:
        left = map(trial_name, self.study.running())
        return any(self._claims.seen_to(name) is not True for name in left)

    def _claim(self, number: int) -> None:
        claim = self._claims.take(trial_name(number))
        if claim is None:
            return
        if number not in self.study.running():  # another searcher has seen it to its end
            claim.release()
            return
        settings = self.study.settings(number)
        run = TrialRun(
            self.search.run_folder(number),
            self.search.arguments(number, settings),
            self.launcher,
            self._free_place(),
        )
        self._seen_to.append(_Claimed(number, run, NewEpochs(run.folder), claim))
        goes_on = "goes on" if run.folder.exists() else "begins"
        say(f"{run.folder.name} {goes_on}: {' '.join(self.search.space.overrides(settings))}")
        self.study.write_result()

    def _free_place(self) -> Place:
        taken = [claimed.run.place for claimed in self._seen_to]
        return next(place for place in self.places if place not in taken)

    def _look_at(self, claimed: _Claimed) -> None:
        """Reports what a training has come to, and sees to it that it goes on, or ends."""
        try:
            claimed.claim.check()
        except InputError as lost:  # this process was suspended, and taken for dead
            complain(str(lost))
            self._seen_to.remove(claimed)
            return
        state = claimed.run.state  # before its epochs are read: nothing follows the end
        for epoch in claimed.epochs.look():
            self._report(claimed, epoch)
        if state == "ended":  # it may have been to be pruned; its value is known all the same
            self._finish(claimed)
        elif claimed.pruned:
            if state == "idle":
                self._end(claimed, None)
            else:
                claimed.run.ask_to_stop()  # one that trains elsewhere is not reached, and ends
        elif state == "idle":
            self._launch(claimed)

    def _report(self, claimed: _Claimed, epoch: EpochRecord) -> None:
        metric = self.search.space.metric
        value = metric_of(metric, epoch)
        if value is None:
            return
        pruned = self.study.report(claimed.number, epoch.number, value)
        claimed.pruned = claimed.pruned or pruned
        shown = f"epoch {epoch.number}, {metric} {value:.5g}"
        say(f"{claimed.run.folder.name} {shown}{', to be pruned' if pruned else ''}")

    def _launch(self, claimed: _Claimed) -> None:
        if claimed.run.goes_nowhere:
            self._end(claimed, None, claimed.run.failure)
            return
        with suppress(HeldError):  # what a searcher before had started has come to life
            claimed.run.launch()

    def _finish(self, claimed: _Claimed) -> None:
        """Writes down the value of a training that has ended."""
        folder, metric = claimed.run.folder, self.search.space.metric
        values = [metric_of(metric, epoch) for epoch in read_epochs(folder)]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            self._end(claimed, None, f"no epoch records {metric}")
            return
        best = min(known) if self.search.space.minimises else max(known)
        self._end(claimed, best)
        say(f"{folder.name} ended: {metric} {best:.5g}")

    def _end(self, claimed: _Claimed, value: float | None, reason: str = "") -> None:
        """Writes down how a trial ended, and leaves it."""
        self.study.finish(claimed.number, value, reason)
        if reason:
            complain(f"{claimed.run.folder}: failed: {reason}")
        claimed.claim.release()
        self._seen_to.remove(claimed)
        self.study.write_result()

    def _leave(self) -> None:
        """Asks the trainings that are left to save, waits for them, and gives up their claims."""
        for claimed in self._seen_to:
            claimed.run.ask_to_stop()
        for claimed in self._seen_to:
            while claimed.run.state == "running" and claimed.run.ask_to_stop():
                time.sleep(LOOK)
            claimed.claim.release()
