"""A population is trained round by round, by one searcher or several, on as many hosts.

A round of a trial is a training like any other, in the trial's own run folder. Who goes on from
whom is decided from files that are written once, whoever trains: the same from the same seed.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bigtrk.config import override
from bigtrk.console import complain, say
from bigtrk.disk.files import disk_errors
from bigtrk.disk.folder_lock import FolderLock, HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import metric_of
from bigtrk.records.run_folder import read_run
from bigtrk.records.search import (
    DecisionRecord,
    RoundRecord,
    TrialRecord,
    ValueRecord,
    trial_name,
)
from bigtrk.studies.search.claims import Claims
from bigtrk.studies.search.launcher import Launcher
from bigtrk.studies.search.outcomes import write_outcomes
from bigtrk.studies.search.places import Place
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.population.decisions import Standing, decide, first_settings
from bigtrk.studies.search.population.rounds import Rounds
from bigtrk.studies.search.stopping import noting_signals
from bigtrk.studies.search.trial_run import TrialRun

LOOK = 0.5  # s between two looks at a training
EPOCHS = "training.epochs"


@dataclass
class _Task:
    """A round of a trial that this searcher sees to."""

    trial: int
    number: int
    decision: DecisionRecord
    run: TrialRun
    claim: FolderLock


@dataclass
class PopulationSearcher:
    """Trains the rounds of `trials` trials, as many at once as there are `places`."""

    search: Search
    places: Sequence[Place]
    trials: int
    launcher: Launcher
    _tasks: list[_Task] = field(default_factory=list)
    _rounds: Rounds = field(init=False)
    _claims: Claims = field(init=False)

    def __post_init__(self) -> None:
        population = self.search.space.population
        assert population is not None
        self._every, self._lag = population.every, population.lag
        self._rounds = Rounds(self.search.folder / "rounds")
        self._claims = Claims(self.search.claims)

    def run(self) -> None:
        """Trains until all trials have ended their last round.

        Raises:
            StoppedError: a signal asked for it; the trainings have saved.
            InputError: all trials have failed, a record is damaged, or the disk refuses.
        """
        with noting_signals() as asked:
            try:
                while not asked.by and (self._begin_rounds() or self._tasks):
                    for task in list(self._tasks):
                        self._look_at(task)
                    time.sleep(LOOK)
            finally:
                self._leave()
        asked.check()

    def outcomes(self) -> list[TrialRecord]:
        """Lists the trials as they are: their last round's value and settings."""
        return [self._outcome(trial) for trial in range(self.trials)]

    def write_result(self) -> None:
        """Writes `result.json`: the trials as they are, and their rounds.

        Raises:
            InputError: the disk refuses.
        """
        with FolderLock() as lock, disk_errors():
            lock.take(self.search.folder, patient=True)  # what is known last is to stay
            write_outcomes(self.search.folder, self.search.space, self.outcomes(), self._history())

    def _history(self) -> list[RoundRecord]:
        """Lists all rounds that were decided: who trained what, from whom, to which value."""
        found = []
        for number in range(self._number_of_rounds):
            for trial in range(self.trials):
                decision = self._rounds.decision(number, trial)
                value = self._rounds.value(number, trial)
                if decision:
                    told = {"value": value.value if value else None, **decision.model_dump()}
                    found.append(RoundRecord(round=number, trial=trial, **told))
        return found

    def _outcome(self, trial: int) -> TrialRecord:
        number = self._next_round(trial)
        last = (self._number_of_rounds if number is None else number) - 1
        decision = self._rounds.decision(max(last, 0), trial)
        value = self._rounds.value(last, trial) if last >= 0 else None
        failed = value is not None and value.value is None
        return TrialRecord(
            number=trial,
            state="failed" if failed else "complete" if number is None else "running",
            value=value.value if value else None,
            epochs=decision.epochs if decision and value else 0,
            settings=decision.settings if decision else {},
            reason=value.reason if value else "",
        )

    @property
    def _number_of_rounds(self) -> int:
        return self.search.epochs // self._every

    def _next_round(self, trial: int) -> int | None:
        """Returns the round that a trial has not ended; None after its last."""
        numbers = range(self._number_of_rounds)
        return next((n for n in numbers if self._rounds.value(n, trial) is None), None)

    def _begin_rounds(self) -> bool:
        """Gives free places rounds that can begin; returns False once all trials have ended."""
        left = [(n, t) for t in range(self.trials) if (n := self._next_round(t)) is not None]
        own = [task.trial for task in self._tasks]
        for number, trial in sorted(left):
            if len(self._tasks) == len(self.places):
                break
            free = trial not in own and self._claims.seen_to(trial_name(trial)) is False
            if free and self._is_ready(number, trial):
                self._begin(number, trial)
        return bool(left)

    def _looked_at(self, number: int, trial: int) -> int:
        """Returns the round by whose values it is decided how a trial begins this one."""
        before = self._rounds.value(number - 1, trial)
        assert before is not None, "rounds are ended one after another"
        # A trial that has failed has nothing to go on from, and waits for the others.
        return number - 1 - (self._lag if before.value is not None else 0)

    def _is_ready(self, number: int, trial: int) -> bool:
        if number == 0 or self._rounds.decision(number, trial):
            return True
        looked_at = self._looked_at(number, trial)
        others = range(self.trials) if looked_at >= 0 else ()
        return all(self._rounds.value(looked_at, other) for other in others)

    def _begin(self, number: int, trial: int) -> None:
        claim = self._claims.take(trial_name(trial))
        if claim is None:
            return
        if self._next_round(trial) != number:  # another searcher has ended it
            claim.release()
            return
        decision = self._rounds.decision(number, trial) or self._decide(number, trial)
        self._rounds.write_decision(number, trial, decision)
        own = [*self.search.space.overrides(decision.settings), override(EPOCHS, decision.epochs)]
        run = TrialRun(
            self.search.run_folder(trial),
            [*self.search.arguments(trial, decision.settings), override(EPOCHS, decision.epochs)],
            self.launcher,
            self._free_place(),
            changes=own,
            epochs=decision.epochs,
        )
        self._tasks.append(_Task(trial, number, decision, run, claim))
        source = "" if decision.source is None else f" from {trial_name(decision.source)}"
        say(f"{run.folder.name} round {number + 1}{source}: {' '.join(own)}")
        self.write_result()

    def _decide(self, number: int, trial: int) -> DecisionRecord:
        if number == 0:
            return DecisionRecord(
                settings=first_settings(self.search.space, trial), epochs=self._every
            )
        before = self._known_decision(number - 1, trial)
        own = before.model_copy(
            update={"source": None, "source_round": None, "epochs": before.epochs + self._every}
        )
        looked_at = self._looked_at(number, trial)
        since = [self._known_decision(n, trial) for n in range(max(looked_at + 1, 0), number)]
        if looked_at < 0 or any(one.source is not None for one in since):
            return own  # what is known is not of the weights that it has now
        standings = [self._standing(looked_at, other) for other in range(self.trials)]
        try:
            found = decide(self.search.space, number, trial, standings)
        except ValueError as error:
            raise InputError(f"{self.search.folder}: {error}; widen or shift the space") from None
        if found is None:
            return own
        return DecisionRecord(
            source=found.source,
            source_round=looked_at,
            settings=found.settings,
            epochs=self._known_decision(looked_at, found.source).epochs + self._every,
        )

    def _known_decision(self, number: int, trial: int) -> DecisionRecord:
        decision = self._rounds.decision(number, trial)
        assert decision is not None, "a round that was trained was decided"
        return decision

    def _standing(self, number: int, trial: int) -> Standing:
        value = self._rounds.value(number, trial)
        assert value is not None, "it is waited for"
        return Standing(value.value, self._known_decision(number, trial).settings)

    def _free_place(self) -> Place:
        taken = [task.run.place for task in self._tasks]
        return next(place for place in self.places if place not in taken)

    def _look_at(self, task: _Task) -> None:
        """Sees to it that a round goes on, or ends."""
        try:
            task.claim.check()
        except InputError as lost:  # this process was suspended, and taken for dead
            complain(str(lost))
            self._tasks.remove(task)
            return
        try:
            # Before the run says how far it is: until then that is of the round before.
            self._rounds.take_over(task.number, task.trial, task.run.folder, task.decision)
        except HeldError:  # by what a searcher before had started
            return
        match task.run.state:
            case "ended":
                self._end(task, self._measured(task))
            case "idle" if task.run.goes_nowhere:
                self._end(task, ValueRecord(value=None, reason=task.run.failure))
            case "idle":
                with suppress(HeldError):  # what a searcher before had started has come to life
                    task.run.launch()

    def _measured(self, task: _Task) -> ValueRecord:
        metric = self.search.space.metric
        epochs = read_run(task.run.folder).epochs
        value = metric_of(metric, epochs[-1]) if epochs else None
        if value is None or not math.isfinite(value):
            return ValueRecord(value=None, reason=f"its last epoch records no {metric}")
        return ValueRecord(value=value)

    def _end(self, task: _Task, value: ValueRecord) -> None:
        self._rounds.end(task.number, task.trial, task.run.folder, value)
        # The slowest trial may still look at a round that is so much older.
        self._rounds.drop(task.number - 1 - 2 * self._lag, task.trial)
        name, metric = task.run.folder.name, self.search.space.metric
        if value.value is None:
            complain(f"{name} round {task.number + 1} failed: {value.reason}")
        else:
            say(f"{name} round {task.number + 1} ended: {metric} {value.value:.5g}")
        task.claim.release()
        self._tasks.remove(task)
        self.write_result()

    def _leave(self) -> None:
        """Asks the trainings that are left to save, waits for them, and gives up their claims."""
        for task in self._tasks:
            task.run.ask_to_stop()
        for task in self._tasks:
            while task.run.state == "running" and task.run.ask_to_stop():
                time.sleep(LOOK)
            task.claim.release()
