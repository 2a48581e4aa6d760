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
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigtrk.config import override
from bigtrk.console import complain, say
from bigtrk.disk.files import disk_errors, unlinked, whole_folder
from bigtrk.disk.folder_lock import FolderLock, HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import metric_of
from bigtrk.records.record import FileRecord, Kind, read_record, write_record
from bigtrk.records.run_folder import RUN, read_run
from bigtrk.records.search import (
    DECISION,
    VALUE,
    DecisionRecord,
    RoundRecord,
    TrialRecord,
    ValueRecord,
    trial_name,
)
from bigtrk.studies.search.outcomes import write_outcomes
from bigtrk.studies.search.space import Choices, Population, Range, Space
from bigtrk.studies.search.stopping import noting_signals
from bigtrk.studies.search.trainings import HostPlace, Launcher, TrialRun
from bigtrk.training.run_folder import CHECKPOINTS, hold, record_end
from bigtrk.training.settings import Configuration

if TYPE_CHECKING:
    from bigtrk.studies.search.plan import Search

LOOK = 0.5  # s between two looks at a training
EPOCHS = "training.epochs"
TAKEN = "taken"  # marks that a trial has the checkpoints that its decision names
# Of the settings that a resumed run may change, those that change what it learns.
CHANGED = ("optimizer.", "training.spike_")
SCHEDULE, OPTIMIZER = "optimizer.schedule", "optimizer.name"
FEWEST = 2  # trials


def check_population(file: Path, space: Space, configuration: Configuration, trials: int) -> None:
    """Checks that trials of a population can go on with each other's settings.

    Raises:
        InputError: they cannot.
    """
    assert space.population is not None
    for key in space.settings:
        if not key.startswith(CHANGED) or key == OPTIMIZER:
            raise InputError(
                f"{file}: space.{key}: a population changes settings of trainings that go on, "
                f"{', '.join(f'{prefix}*' for prefix in CHANGED)} but {OPTIMIZER}; leave out the "
                f"key, or the population"
            )
    schedules = space.settings.get(SCHEDULE)
    chosen = schedules.values if isinstance(schedules, Choices) else ()
    if "cosine" in (configuration.optimizer.schedule, *chosen):
        raise InputError(
            f"{SCHEDULE}=cosine: falls to the end of a training, which a population does not know "
            f"in its rounds; choose constant or plateau"
        )
    epochs, every = configuration.training.epochs, space.population.every
    if epochs % every:
        raise InputError(
            f"training.epochs={epochs}: is no multiple of population.every={every}; correct one"
        )
    if trials < FEWEST:
        raise InputError(f"--trials {trials}: a population has at least {FEWEST}; raise it")
    if configuration.training.minutes is not None:
        raise InputError(
            "training.minutes: a population trains its rounds to their end; leave it out"
        )


@dataclass(frozen=True)
class Standing:
    """A trial after a round: the metric's value, None if it failed, and its settings then."""

    value: float | None
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Exploit:
    """Going on from the checkpoint of the trial `source`, with `settings`."""

    source: int
    settings: dict[str, Any]


def first_settings(space: Space, trial: int) -> dict[str, Any]:
    """Draws the settings that a trial begins with."""
    rng = _generator(space, 0, trial)
    return {key: _drawn(place, rng) for key, place in space.settings.items()}


def decide(space: Space, number: int, trial: int, standings: Sequence[Standing]) -> Exploit | None:
    """Decides from what a trial begins its round `number`, counted from 0: the checkpoint of one of
    the best, or its own (None). It depends on the seed, the round, the trial and `standings`, those
    of all trials, alone.

    Raises:
        ValueError: it has failed, and so have all others.
    """
    population = space.population
    assert population is not None
    ranking = _ranking(space, standings)
    alive = [one for one in ranking if standings[one].value is not None]
    count = max(1, int(population.part * len(standings)))
    failed = standings[trial].value is None
    if not failed and trial not in ranking[-count:]:
        return None
    best = [one for one in alive[:count] if one != trial]
    if not best:
        if failed:
            raise ValueError("all trials of the population have failed")
        return None
    rng = _generator(space, number, trial)
    source = best[int(rng.integers(len(best)))]
    return Exploit(source, perturbed(space, standings[source].settings, rng))


def perturbed(
    space: Space, settings: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Perturbs each setting: a number by the population's factor, within its bounds; a choice to
    the one before or after it in the list. Some are drawn anew.
    """
    population = space.population
    assert population is not None
    return {
        key: _drawn(place, rng)
        if rng.random() < population.redrawn
        else _moved(place, settings[key], population, rng)
        for key, place in space.settings.items()
    }


def _ranking(space: Space, standings: Sequence[Standing]) -> list[int]:
    """Lists the trials, best first; those that failed last, ties by number."""
    sign = 1 if space.minimises else -1

    def key(trial: int) -> tuple[bool, float, int]:
        value = standings[trial].value
        return value is None, 0.0 if value is None else sign * value, trial

    return sorted(range(len(standings)), key=key)


def _generator(space: Space, number: int, trial: int) -> np.random.Generator:
    return np.random.default_rng([space.seed, number, trial])


def _drawn(place: Range | Choices, rng: np.random.Generator) -> Any:
    if isinstance(place, Choices):
        return place.values[int(rng.integers(len(place.values)))]
    low, high = place.ends
    if place.step is not None or (place.is_whole and not place.log):
        step = place.step or 1
        return low + step * int(rng.integers(int((high - low) / step + 1e-9) + 1))
    if not place.log:
        return float(rng.uniform(low, high))
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return _within(place, value)


def _moved(
    place: Range | Choices, value: Any, population: Population, rng: np.random.Generator
) -> Any:
    up = rng.random() < 0.5
    if isinstance(place, Choices):
        at = place.values.index(value) + (1 if up else -1)
        return place.values[min(max(at, 0), len(place.values) - 1)]
    return _within(place, value * population.factor if up else value / population.factor)


def _within(place: Range, value: float) -> int | float:
    """Returns the value of a range that is nearest to a number."""
    low, high = place.ends
    if place.step is not None or place.is_whole:
        step = place.step or 1
        value = low + step * round((value - low) / step)
        value = value if value <= high else low + step * int((high - low) / step + 1e-9)
    value = min(max(value, low), high)
    return int(value) if place.is_whole else float(value)


@dataclass(frozen=True)
class Rounds:
    """The rounds of a population, in the folder `root`; each file is written and read once.

    Raises:
        InputError: a file is damaged, or the disk refuses; by all methods.
    """

    root: Path
    _known: dict[Path, FileRecord] = field(default_factory=dict)

    def folder(self, number: int, trial: int) -> Path:
        """Returns the folder of a trial's round."""
        return self.root / f"{number:04d}" / trial_name(trial)

    def decision(self, number: int, trial: int) -> DecisionRecord | None:
        """Reads what a trial trains in a round; None if it is not decided yet."""
        return self._read(DecisionRecord, self.folder(number, trial) / DECISION)

    def write_decision(self, number: int, trial: int, decision: DecisionRecord) -> None:
        """Writes down what a trial trains in a round."""
        with disk_errors():
            write_record(self.folder(number, trial) / DECISION, decision)

    def value(self, number: int, trial: int) -> ValueRecord | None:
        """Reads what a trial came to in a round; None if it has not ended it."""
        return self._read(ValueRecord, self.folder(number, trial) / VALUE)

    def end(self, number: int, trial: int, run: Path, value: ValueRecord) -> None:
        """Ends a trial's round: keeps the run's checkpoints, unless it failed, and its value."""
        with disk_errors():
            if value.value is not None:
                _copy(run / CHECKPOINTS, self.folder(number, trial) / CHECKPOINTS)
            write_record(self.folder(number, trial) / VALUE, value)

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

    def drop(self, before: int, trial: int) -> None:
        """Drops the checkpoints of a trial's rounds before that of this number."""
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
                (new / path.name).mkdir()
                for file in path.iterdir():
                    _link(file, new / path.name / file.name)
            else:
                shutil.copyfile(path, new / path.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@dataclass
class _Task:
    """A round of a trial that is trained now."""

    trial: int
    number: int
    decision: DecisionRecord
    run: TrialRun


@dataclass
class PopulationSearcher:
    """Trains the rounds of `trials` trials, as many at once as there are `places`."""

    search: "Search"
    places: Sequence[HostPlace]
    trials: int
    launcher: Launcher
    _tasks: list[_Task] = field(default_factory=list)
    _rounds: Rounds = field(init=False)

    def __post_init__(self) -> None:
        population = self.search.space.population
        assert population is not None
        self._every = population.every
        self._rounds = Rounds(self.search.folder / "rounds")

    def run(self) -> None:
        """Trains until all trials have ended their last round.

        Raises:
            StoppedError: a signal asked for it; the trainings have saved.
            InputError: all trials have failed, a record is damaged, or the disk refuses.
        """
        with noting_signals() as asked, FolderLock() as lock:
            lock.take(self.search.folder)
            try:
                while not asked.by and (self._begin_rounds() or self._tasks):
                    for task in list(self._tasks):
                        self._look_at(task)
                    time.sleep(LOOK)
            finally:
                self._leave()
            self._write_result()
        asked.check()

    def outcomes(self) -> list[TrialRecord]:
        """Lists the trials as they are: their last round's value and settings."""
        return [self._outcome(trial) for trial in range(self.trials)]

    def _write_result(self) -> None:
        """Writes `result.json`: the trials as they are, and their rounds."""
        with disk_errors():
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
            if trial not in own and self._is_ready(number):
                self._begin(number, trial)
        return bool(left)

    def _is_ready(self, number: int) -> bool:
        """Whether all trials have ended the round before."""
        return number == 0 or all(self._rounds.value(number - 1, t) for t in range(self.trials))

    def _begin(self, number: int, trial: int) -> None:
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
        self._tasks.append(_Task(trial, number, decision, run))
        source = "" if decision.source is None else f" from {trial_name(decision.source)}"
        say(f"{run.folder.name} round {number + 1}{source}: {' '.join(own)}")
        self._write_result()

    def _decide(self, number: int, trial: int) -> DecisionRecord:
        space = self.search.space
        if number == 0:
            return DecisionRecord(settings=first_settings(space, trial), epochs=self._every)
        standings = [self._standing(number - 1, other) for other in range(self.trials)]
        try:
            found = decide(space, number, trial, standings)
        except ValueError as error:
            raise InputError(f"{self.search.folder}: {error}; widen or shift the space") from None
        epochs = (number + 1) * self._every
        if found is None:
            return DecisionRecord(settings=dict(standings[trial].settings), epochs=epochs)
        return DecisionRecord(
            source=found.source, source_round=number - 1, settings=found.settings, epochs=epochs
        )

    def _standing(self, number: int, trial: int) -> Standing:
        value, decision = self._rounds.value(number, trial), self._rounds.decision(number, trial)
        assert value is not None, "it is waited for"
        assert decision is not None, "a round that was trained was decided"
        return Standing(value.value, decision.settings)

    def _free_place(self) -> HostPlace:
        taken = [task.run.place for task in self._tasks]
        return next(place for place in self.places if place not in taken)

    def _look_at(self, task: _Task) -> None:
        """Sees to it that a round goes on, or ends."""
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
        self._rounds.drop(task.number - 1, task.trial)
        name, metric = task.run.folder.name, self.search.space.metric
        if value.value is None:
            complain(f"{name} round {task.number + 1} failed: {value.reason}")
        else:
            say(f"{name} round {task.number + 1} ended: {metric} {value.value:.5g}")
        self._tasks.remove(task)
        self._write_result()

    def _leave(self) -> None:
        """Asks the trainings that are left to save, and waits for them."""
        for task in self._tasks:
            task.run.ask_to_stop()
        for task in self._tasks:
            while task.run.state == "running" and task.run.ask_to_stop():
                time.sleep(LOOK)
