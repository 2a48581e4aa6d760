"""The study of a search: parameter sets, each with the values that its trial has come to.

Optuna keeps it, in SQLite or in a journal. All that several searchers do in it they do under the
lock of the search's folder, one after another, with either storage.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigtrk.disk.files import disk_errors
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError
from bigtrk.records.search import State, Storage, TrialRecord
from bigtrk.studies.search.outcomes import write_outcomes
from bigtrk.studies.search.space import Choices, Range, Space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

FILES: dict[Storage, str] = {"sqlite": "study.db", "journal": "study.journal"}
NAME = "search"
REASON, PRUNED = "reason", "pruned"  # attributes of a trial
# By Optuna's names; of the others there are none.
STATES: dict[str, State] = {
    "RUNNING": "running",
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
}


class SharedStudy:
    """A study that several searchers read and write."""

    def __init__(self, folder: Path, space: Space, storage: Storage) -> None:
        """Opens the study in `folder`; it is made if it is missing.

        Raises:
            InputError: Optuna is not installed, or the study's file is damaged.
        """
        if find_spec("optuna") is None:
            raise InputError("optuna is not installed; pip install 'bigtrk[search]'")
        import optuna

        opener = _sqlite if storage == "sqlite" else _journal()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._folder, self._space = folder, space
        with self._held(), _readable(folder / FILES[storage]):
            self._storage = opener(folder / FILES[storage])
            optuna.create_study(
                storage=self._storage,
                study_name=NAME,
                direction="minimize" if space.minimises else "maximize",
                load_if_exists=True,
            )

    def draw(self, most: int) -> int | None:
        """Draws a parameter set; returns its number, or None if there are `most` already.

        The draw depends on the seed, its number and what is known of the others by then.
        """
        with self._held():
            number = len(self._trials())
            if number >= most:
                return None
            trial = self._study(number).ask()
            self._complete(trial)
            return trial.number

    def settings(self, number: int) -> dict[str, Any]:
        """Returns a parameter set; one whose draw was interrupted is drawn to its end."""
        with self._held():
            return self._complete(self._trial(number))

    def report(self, number: int, epoch: int, value: float) -> bool:
        """Writes down the metric's value after so many epochs; says whether to prune the trial. An
        epoch's first value stands, and so does the decision to prune: epochs that are trained until
        the training has stopped are written down, too.
        """
        with self._held():
            known, trial = self._frozen(number), self._trial(number)
            if epoch not in known.intermediate_values:
                trial.report(value, epoch)
            if PRUNED in known.user_attrs:
                return True
            if trial.should_prune():
                trial.set_user_attr(PRUNED, epoch)
                return True
            return False

    def finish(self, number: int, value: float | None, reason: str = "") -> None:
        """Writes down a trial's final value; None: it was pruned or, for a `reason`, failed. What
        has ended already is left as it is.
        """
        from optuna.trial import TrialState

        with self._held():
            if self._frozen(number).state.is_finished():
                return
            if reason:
                self._trial(number).set_user_attr(REASON, reason)
            state = TrialState.FAIL if reason else TrialState.PRUNED
            state = state if value is None else TrialState.COMPLETE
            self._study(number).tell(number, value, state)

    def running(self) -> list[int]:
        """Lists the trials that have not ended."""
        with self._held():
            return [one.number for one in self._trials() if not one.state.is_finished()]

    def outcomes(self) -> list[TrialRecord]:
        """Lists all trials, by number."""
        with self._held():
            return [self._outcome(trial) for trial in self._trials()]

    def write_result(self) -> None:
        """Writes `result.json`: all trials as they are.

        Raises:
            InputError: the disk refuses.
        """
        with self._held(), disk_errors():  # what is known last is to stay
            found = [self._outcome(trial) for trial in self._trials()]
            write_outcomes(self._folder, self._space, found)

    @contextmanager
    def _held(self) -> Iterator[None]:
        with FolderLock() as lock:
            lock.take(self._folder, patient=True)
            yield

    def _study(self, number: int) -> "Study":
        """Returns the study with a sampler that is at its beginning for each draw: one that went
        on would begin anew in a new process, and draw what was drawn.
        """
        import optuna

        seed = int(np.random.SeedSequence([self._space.seed, number]).generate_state(1)[0])
        return optuna.load_study(
            study_name=NAME,
            storage=self._storage,
            sampler=_sampler(self._space, seed),
            pruner=_pruner(self._space),
        )

    def _trial(self, number: int) -> "Trial":
        from optuna.trial import Trial

        study = self._storage.get_study_id_from_name(NAME)
        key = self._storage.get_trial_id_from_study_id_trial_number(study, number)
        return Trial(self._study(number), key)

    def _complete(self, trial: "Trial") -> dict[str, Any]:
        return {key: _drawn(trial, key, at) for key, at in self._space.settings.items()}

    def _frozen(self, number: int) -> "FrozenTrial":
        return self._trials()[number]

    def _trials(self) -> "Sequence[FrozenTrial]":
        study = self._storage.get_study_id_from_name(NAME)
        return self._storage.get_all_trials(study)

    def _outcome(self, trial: "FrozenTrial") -> TrialRecord:
        return TrialRecord(
            number=trial.number,
            state=STATES[trial.state.name],
            value=trial.value,
            epochs=len(trial.intermediate_values),
            settings={
                key: place.by_label[trial.params[key]]
                if isinstance(place, Choices)
                else trial.params[key]
                for key, place in self._space.settings.items()
                if key in trial.params
            },
            reason=str(trial.user_attrs.get(REASON, "")),
        )


def _drawn(trial: "Trial", key: str, place: Range | Choices) -> Any:
    """Draws a value, or returns the one that was drawn."""
    if isinstance(place, Choices):
        return place.by_label[trial.suggest_categorical(key, list(place.by_label))]
    if place.is_whole:
        low, high, step = int(place.low), int(place.high), int(place.step or 1)
        return trial.suggest_int(key, low, high, log=place.log, step=step)
    return trial.suggest_float(key, place.low, place.high, log=place.log, step=place.step)


def _sampler(space: Space, seed: int) -> "BaseSampler":
    from optuna.samplers import RandomSampler, TPESampler

    return RandomSampler(seed=seed) if space.sampler == "random" else TPESampler(seed=seed)


def _pruner(space: Space) -> "BasePruner":
    from optuna.pruners import NopPruner, SuccessiveHalvingPruner

    if space.pruning is None:
        return NopPruner()
    return SuccessiveHalvingPruner(
        min_resource=space.pruning.first, reduction_factor=space.pruning.factor
    )


def _sqlite(path: Path) -> "BaseStorage":
    from optuna.storages import get_storage

    return get_storage(f"sqlite:///{path.resolve()}")


def _journal() -> "Callable[[Path], BaseStorage]":
    from optuna.storages import JournalStorage

    from bigtrk.studies.search.journal import Journal

    return lambda path: JournalStorage(Journal(path))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what a storage raises of a file that it did not write into bad input."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read as a study ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}); restore it, or choose another --out"
        ) from error
