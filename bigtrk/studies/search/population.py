"""Population-based training on checkpoints (Jaderberg et al., arXiv:1711.09846).

A round of a trial is a training like any other, in the trial's run folder. After each round the
worst trials continue from checkpoints of the best, with perturbed settings. Decisions depend on the
seed and on values that are written once, so a search that was killed continues with the same ones:

    OUT/rounds/0002/trial0003/value.json       the metric after the round
    OUT/rounds/0002/trial0003/checkpoints/     those of the run after the round
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigtrk.config import override
from bigtrk.console import complain, say
from bigtrk.disk.files import disk_errors, unlinked, whole_folder
from bigtrk.disk.folder_lock import FolderLock, HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import metric_of
from bigtrk.records.record import read_record, write_record
from bigtrk.records.run_folder import RUN, read_epochs
from bigtrk.records.studies import VALUE, RoundRecord, State, TrialRecord, ValueRecord, trial_name
from bigtrk.studies.launch import link_or_copy
from bigtrk.studies.search.plan import Search, Space
from bigtrk.studies.search.trainings import Place, TrialRun
from bigtrk.training.run_folder import CHECKPOINTS, hold, record_end


def first_settings(space: Space, trial: int) -> dict[str, Any]:
    """Returns the random settings with which a trial begins."""
    rng = np.random.default_rng([space.seed, 0, trial])
    return {key: place.drawn(rng) for key, place in space.settings.items()}


def decide(
    space: Space, number: int, trial: int, standings: Sequence[RoundRecord]
) -> tuple[int | None, Mapping[str, Any]]:
    """Decides how a trial begins round `number`, from 0. Returns (None, its own settings) to go on
    from its own checkpoint, or the number of one of the best trials, whose checkpoint it takes, and
    new settings. standings: all trials' last round; value None: it failed. The decision depends
    only on these, the seed and the arguments. Raises InputError if all have failed.
    """
    population = space.population
    assert population is not None
    sign = 1 if space.minimises else -1
    values = [math.inf if one.value is None else sign * one.value for one in standings]
    ranking = sorted(range(len(values)), key=values.__getitem__)  # ties by number
    count, alive = max(1, int(population.part * len(values))), len(values) - values.count(math.inf)
    failed = standings[trial].value is None
    if failed and not alive:
        raise InputError("all trials have failed; look into their train.log, and change SPACE.yaml")
    best = [one for one in ranking[: min(count, alive)] if one != trial]
    if not best or not (failed or trial in ranking[-count:]):
        return None, standings[trial].settings
    rng = np.random.default_rng([space.seed, number, trial])
    source = best[int(rng.integers(len(best)))]
    own = standings[source].settings
    return source, {
        key: place.drawn(rng)
        if rng.random() < population.redrawn
        else place.moved(own[key], population.factor, rng)
        for key, place in space.settings.items()
    }


def end_round(run: Path, folder: Path, value: ValueRecord) -> None:
    """Copies a round's checkpoints to `folder`, unless it failed; then writes its value."""
    with disk_errors():
        if value.value is not None:
            _copy(run / CHECKPOINTS, folder / CHECKPOINTS)
        write_record(folder / VALUE, value)


def take_over(run: Path, source: Path, folder: Path) -> None:
    """Copies the checkpoints kept by the round in `source` to a run, once; a mark in `folder`, the
    run's own round, notes it. Raises HeldError if a process is training the run.
    """
    marker = unlinked(folder) / "taken"
    if marker.exists():
        return
    with FolderLock() as lock, disk_errors():
        hold(lock, run)
        _copy(source / CHECKPOINTS, run / CHECKPOINTS)
        if (run / RUN).exists():
            record_end(run, None)  # that of the round before
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()


def _copy(checkpoints: Path, place: Path) -> None:
    """Replaces the folder `place` by a copy of `checkpoints`, with hard links where possible."""
    with whole_folder(place) as new:
        for path in sorted(checkpoints.iterdir()):
            if path.name.startswith("."):  # half-written
                continue
            if path.is_dir():
                shutil.copytree(path, new / path.name, copy_function=link_or_copy)
            else:
                shutil.copyfile(path, new / path.name)


class Members:
    """The trials of a population; a round begins once all trials have ended the one before."""

    def __init__(self, search: Search, trials: int) -> None:
        assert search.space.population is not None
        self._search, self._trials = search, range(trials)
        self._every = search.space.population.every
        self._training: set[int] = set()
        # By (round, trial): all decisions, and the values of the rounds that have ended.
        self._decided: dict[tuple[int, int], RoundRecord] = {}
        self._ended: dict[tuple[int, int], ValueRecord] = {}
        self._left = [(n, k) for n in range(search.epochs // self._every) for k in self._trials]
        for number, trial in [*self._left]:
            path = self._folder(number, trial) / VALUE
            if path.exists():
                self._end(number, trial, read_record(ValueRecord, path))

    def begin(self, place: Place) -> TrialRun | None:
        """Begins the next round of a waiting trial and returns its training; None if none waits."""
        number = self._left[0][0] if self._left else -1
        waiting = [k for n, k in self._left if n == number and k not in self._training]
        if not waiting:
            return None
        decision = self._decision(number, waiting[0])
        trial, space = decision.trial, self._search.space
        epochs = override("training.epochs", decision.epochs)
        changes = [*space.overrides(decision.settings), epochs]
        arguments = [*self._search.arguments(trial, decision.settings), epochs]
        folder = self._search.run_folder(trial)
        run = TrialRun(folder, arguments, place, changes, decision.epochs)
        run.steps = self._train(decision, run)
        source = "" if decision.source is None else f" from {trial_name(decision.source)}"
        say(f"{folder.name} round {number + 1}{source}: {' '.join(changes)}")
        self._training.add(trial)
        self.write_result()
        return run

    def _folder(self, number: int, trial: int) -> Path:
        return self._search.folder / "rounds" / f"{number:04d}" / trial_name(trial)

    def _end(self, number: int, trial: int, value: ValueRecord) -> None:
        decision = self._decision(number, trial)
        self._decided[number, trial] = decision.model_copy(update={"value": value.value})
        self._ended[number, trial] = value
        self._left.remove((number, trial))

    def _decision(self, number: int, trial: int) -> RoundRecord:
        """Returns what a trial trains in a round; all must have ended the round before."""
        if (number, trial) in self._decided:
            return self._decided[number, trial]
        source, space = None, self._search.space
        settings: Mapping[str, Any] = first_settings(space, trial)
        if number:
            before = [(number - 1, other) for other in self._trials]
            if lost := [self._folder(*one) / VALUE for one in before if one not in self._ended]:
                raise InputError(
                    f"{lost[0]}: is missing, though a later round has ended; restore it, or "
                    f"choose another --out"
                )
            try:
                source, settings = decide(space, number, trial, [self._decided[x] for x in before])
            except InputError as error:
                raise InputError(f"{self._search.folder}: {error}") from None
        self._decided[number, trial] = RoundRecord(
            round=number,
            trial=trial,
            value=None,
            source=source,
            source_round=None if source is None else number - 1,
            settings=dict(settings),
            epochs=(number + 1) * self._every,
        )
        return self._decided[number, trial]

    def _train(self, decision: RoundRecord, run: TrialRun) -> Iterator[None]:
        """Trains a round in steps, and records its end."""
        number, trial = decision.round, decision.trial
        folder, name = self._folder(number, trial), f"{run.folder.name} round {number + 1}"
        while decision.source is not None:
            try:
                # Before `follow` reads the run, whose state is still that of the round before.
                take_over(run.folder, self._folder(number - 1, decision.source), folder)
                break
            except HeldError:  # by a training that an earlier searcher started
                yield
        yield from run.follow()
        metric, epochs, reason = self._search.space.metric, read_epochs(run.folder), run.failure
        value = metric_of(metric, epochs[-1]) if epochs and not reason else None
        if value is None or not math.isfinite(value):
            value, reason = None, reason or f"its last epoch records no {metric}"
            complain(f"{name} failed: {reason}")
        else:
            say(f"{name} ended: {metric} {value:.5g}")
        ended = ValueRecord(value=value, reason=reason)
        end_round(run.folder, folder, ended)
        with disk_errors():
            for before in range(number - 1):  # the last two alone can be taken over
                shutil.rmtree(unlinked(self._folder(before, trial) / CHECKPOINTS), True)
        self._end(number, trial, ended)
        self._training.remove(trial)
        self.write_result()

    def write_result(self) -> None:
        """Writes `result.json`: each trial as of its last ended round, and all rounds."""
        outcomes, rounds = {}, sorted(self._decided.items())
        for (number, trial), decision in rounds:
            ended = self._ended.get((number, trial))
            if ended or not number:
                state: State = "running"
                if ended and ended.value is None:
                    state = "failed"
                elif ended and decision.epochs == self._search.epochs:
                    state = "complete"
                outcomes[trial] = TrialRecord(
                    number=trial,
                    state=state,
                    value=decision.value,
                    epochs=decision.epochs if ended else 0,
                    settings=decision.settings,
                    reason=ended.reason if ended else "",
                )
        self._search.write([*outcomes.values()], [decision for _, decision in rounds])
