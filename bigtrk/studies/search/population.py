"""Population-based training on checkpoints (Jaderberg et al., arXiv:1711.09846).

A round of a trial is a training like any other, in the trial's run folder. After each round the
worst trials continue from checkpoints of the best, with perturbed settings. Decisions depend on the
seed and on files that are written once, so a search that was killed continues with the same ones:

    OUT/rounds/0002/trial0003/decision.json    what the trial trains in the round
    OUT/rounds/0002/trial0003/value.json       the metric after it
    OUT/rounds/0002/trial0003/checkpoints/     those of the run after the round
"""

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigtrk.config import override
from bigtrk.console import complain, say
from bigtrk.disk.files import disk_errors, unlinked, whole_folder
from bigtrk.disk.folder_lock import FolderLock, HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import metric_of
from bigtrk.records.record import Kind, read_record, write_record
from bigtrk.records.run_folder import RUN, read_epochs
from bigtrk.records.studies import (
    DECISION,
    VALUE,
    DecisionRecord,
    RoundRecord,
    TrialRecord,
    ValueRecord,
    trial_name,
)
from bigtrk.studies.search.plan import Search
from bigtrk.studies.search.space import Space
from bigtrk.studies.search.trainings import HostPlace, Launcher, Task, TrialRun, train_all
from bigtrk.training.run_folder import CHECKPOINTS, hold, record_end

TAKEN = "taken"  # marks that a trial has the checkpoints that its decision names


class Standing(NamedTuple):
    """A trial after a round: the metric's value, None if it failed, and its settings then."""

    value: float | None
    settings: Mapping[str, Any]


def first_settings(space: Space, trial: int) -> dict[str, Any]:
    """Draws the settings that a trial begins with."""
    rng = np.random.default_rng([space.seed, 0, trial])
    return {key: place.drawn(rng) for key, place in space.settings.items()}


def decide(
    space: Space, number: int, trial: int, standings: Sequence[Standing]
) -> tuple[int, dict[str, Any]] | None:
    """Decides from what a trial begins its round `number`, counted from 0: the number of one of the
    best trials, whose checkpoint it takes, and its new settings; or its own checkpoint (None). It
    depends on the seed, the round, the trial and `standings`, those of all trials, alone.

    Raises:
        ValueError: it has failed, and so have all others.
    """
    population = space.population
    assert population is not None
    sign = 1 if space.minimises else -1
    values = [math.inf if one.value is None else sign * one.value for one in standings]
    ranking = sorted(range(len(values)), key=values.__getitem__)  # ties by number
    count, alive = max(1, int(population.part * len(values))), len(values) - values.count(math.inf)
    failed = standings[trial].value is None
    if failed and not alive:
        raise ValueError("all trials of the population have failed")
    best = [one for one in ranking[: min(count, alive)] if one != trial]
    if not best or not (failed or trial in ranking[-count:]):
        return None
    rng = np.random.default_rng([space.seed, number, trial])
    source = best[int(rng.integers(len(best)))]
    own = standings[source].settings
    return source, {
        key: place.drawn(rng)
        if rng.random() < population.redrawn
        else place.moved(own[key], population.factor, rng)
        for key, place in space.settings.items()
    }


class Rounds:
    """The rounds of a population, in the folder `root`; each file is written once.

    Raises:
        InputError: a file is damaged, or the disk refuses; by all methods.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, Any] = {}

    def folder(self, number: int, trial: int) -> Path:
        """Returns the folder of a trial's round."""
        return self._root / f"{number:04d}" / trial_name(trial)

    def decision(self, number: int, trial: int) -> DecisionRecord | None:
        """Reads what a trial trains in a round; None if it is not decided yet."""
        return self._read(DecisionRecord, self.folder(number, trial) / DECISION)

    def value(self, number: int, trial: int) -> ValueRecord | None:
        """Reads the value of a trial after a round; None if it has not ended it."""
        return self._read(ValueRecord, self.folder(number, trial) / VALUE)

    def _read(self, kind: type[Kind], path: Path) -> Kind | None:
        if path not in self._known and path.exists():
            self._known[path] = read_record(kind, path)
        return self._known.get(path)

    def end(self, number: int, trial: int, run: Path, value: ValueRecord) -> None:
        """Ends a trial's round: keeps the run's checkpoints, unless it failed, and its value. The
        checkpoints of rounds before the last are dropped.
        """
        with disk_errors():
            if value.value is not None:
                _copy(run / CHECKPOINTS, self.folder(number, trial) / CHECKPOINTS)
            write_record(self.folder(number, trial) / VALUE, value)
            for before in range(number - 1):
                shutil.rmtree(unlinked(self.folder(before, trial) / CHECKPOINTS), True)

    def take_over(self, number: int, trial: int, run: Path, decision: DecisionRecord) -> None:
        """Gives a run the checkpoints that the decision for its round names, once.

        Raises:
            HeldError: a training of this run is going on.
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


def train_population(
    search: Search, trials: int, places: Sequence[HostPlace], launcher: Launcher
) -> None:
    """Trains until all trials have ended their last round.

    Raises:
        StoppedError: a signal asked for it; the trainings have saved.
        InputError: all trials have failed, a record is damaged, or the disk refuses.
    """
    members = Members(search, trials, launcher)
    try:
        train_all(search.folder, places, members.begin)
    finally:
        members.write_result()


class Members:
    """The trials of a population; a round begins once all have ended the one before."""

    def __init__(self, search: Search, trials: int, launcher: Launcher) -> None:
        assert search.space.population is not None
        self._search, self._trials, self._launcher = search, range(trials), launcher
        self._every = search.space.population.every
        self._numbers = range(search.epochs // self._every)
        self._rounds = Rounds(search.folder / "rounds")
        self._training: set[int] = set()

    def begin(self, place: HostPlace) -> Task | None:
        """Begins the round of a trial, if one can begin."""
        for number in self._numbers:
            left = [trial for trial in self._trials if not self._rounds.value(number, trial)]
            if left:
                free = [trial for trial in left if trial not in self._training]
                return self._begin(number, free[0], place) if free else None
        return None

    def _begin(self, number: int, trial: int, place: HostPlace) -> Task:
        decision = self._rounds.decision(number, trial)
        if decision is None:
            decision = self._decide(number, trial)
            with disk_errors():
                write_record(self._rounds.folder(number, trial) / DECISION, decision)
        epochs = override("training.epochs", decision.epochs)
        changes = [*self._search.space.overrides(decision.settings), epochs]
        arguments = [*self._search.arguments(trial, decision.settings), epochs]
        folder = self._search.run_folder(trial)
        run = TrialRun(folder, arguments, self._launcher, place, changes, decision.epochs)
        source = "" if decision.source is None else f" from {trial_name(decision.source)}"
        say(f"{folder.name} round {number + 1}{source}: {' '.join(changes)}")
        self._training.add(trial)
        self.write_result()
        return Task(run, self._train(number, trial, decision, run))

    def _decide(self, number: int, trial: int) -> DecisionRecord:
        space, epochs = self._search.space, (number + 1) * self._every
        if number == 0:
            return DecisionRecord(settings=first_settings(space, trial), epochs=epochs)
        standings = []
        for other in self._trials:
            before = self._rounds.decision(number - 1, other)
            value = self._rounds.value(number - 1, other)
            assert before is not None, "a round that has ended was decided"
            assert value is not None, "all trials have ended the round before"
            standings.append(Standing(value.value, before.settings))
        try:
            found = decide(space, number, trial, standings)
        except ValueError as error:
            raise InputError(f"{self._search.folder}: {error}; widen or shift the space") from None
        if found is None:
            return DecisionRecord(settings=dict(standings[trial].settings), epochs=epochs)
        source, settings = found
        return DecisionRecord(
            source=source, source_round=number - 1, settings=settings, epochs=epochs
        )

    def _train(
        self, number: int, trial: int, decision: DecisionRecord, run: TrialRun
    ) -> Iterator[None]:
        """Trains a round, and ends it."""
        while True:
            try:
                # Before the run is looked at: until then its state is that of the round before.
                self._rounds.take_over(number, trial, run.folder, decision)
                break
            except HeldError:  # by a training that an earlier searcher started
                yield
        yield from run.follow()
        metric, name = self._search.space.metric, f"{run.folder.name} round {number + 1}"
        epochs, reason = read_epochs(run.folder), run.failure
        value = metric_of(metric, epochs[-1]) if epochs and not reason else None
        if value is None or not math.isfinite(value):
            value, reason = None, reason or f"its last epoch records no {metric}"
            complain(f"{name} failed: {reason}")
        else:
            say(f"{name} ended: {metric} {value:.5g}")
        self._rounds.end(number, trial, run.folder, ValueRecord(value=value, reason=reason))
        self._training.remove(trial)
        self.write_result()

    def write_result(self) -> None:
        """Writes `result.json`: each trial with the value and the settings of the last round that
        it has ended, and all rounds that were decided.
        """
        rounds, outcomes = [], {}
        for number in self._numbers:
            for trial in self._trials:
                decision = self._rounds.decision(number, trial)
                value = self._rounds.value(number, trial)
                if decision is None:
                    continue
                known = value.value if value else None
                told = decision.model_dump(exclude={"format"})
                rounds.append(RoundRecord(round=number, trial=trial, value=known, **told))
                if value or not number:
                    is_last = value is not None and number == self._numbers[-1]
                    failed = value is not None and known is None
                    outcomes[trial] = TrialRecord(
                        number=trial,
                        state="failed" if failed else "complete" if is_last else "running",
                        value=known,
                        epochs=decision.epochs if value else 0,
                        settings=decision.settings,
                        reason=value.reason if value else "",
                    )
        self._search.write_result([*outcomes.values()], rounds)
