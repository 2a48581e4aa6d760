"""A search with Optuna, which draws settings and prunes; each trial is a run folder.

Optuna's journal holds the study. One searcher at a time continues a search; the trials that it
finds running are those of a searcher that died, and continue in their own run folders.
"""

import math
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from bigtrk.console import complain, console, say
from bigtrk.disk.folder_lock import FolderLock
from bigtrk.errors import InputError, reason, shell_word
from bigtrk.records.metrics import metric_of
from bigtrk.records.run_folder import read_epochs
from bigtrk.records.studies import JOURNAL, RESULT, State, TrialRecord, read_search
from bigtrk.reports.search import search_report
from bigtrk.reports.terminal import show
from bigtrk.studies.search.plan import Choices, Range, Search
from bigtrk.studies.search.population import Members
from bigtrk.studies.search.trainings import Place, TrialRun, make_places, noting_signals, train_all

if TYPE_CHECKING:
    from optuna import Study, Trial

REASON = "reason"  # attribute of a trial that failed
STATES: dict[str, State] = {
    "RUNNING": "running",
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
}


def run_search(search: Search, trials: int, at_once: int, ranks: int, launcher: str | None) -> None:
    """Trains `trials` trials with drawn settings, or as a population. Raises InputError if the
    folder holds another search, or the host is too small, and StoppedError after a signal.
    """
    places = make_places(at_once, ranks, launcher)
    search.open()
    with noting_signals() as asked, FolderLock() as lock:
        lock.take(search.folder)
        source = (Members if search.space.population else Searcher)(search, trials)
        try:
            train_all(places, source.begin, asked)
        finally:
            source.write_result()
    show(search_report(read_search(search.folder)), console)
    page = f"bigtrk report {shell_word(search.folder)} --html PAGE"
    say(f"all trials are in {search.folder / RESULT}; to see them: {page}")


class Searcher:
    """Draws settings and trains trials, up to `trials` in the study, which it makes if missing."""

    def __init__(self, search: Search, trials: int) -> None:
        self._search = search
        self._study = _open_study(search)
        self._waiting = self._trials(trials)

    def _trials(self, trials: int) -> Iterator["Trial"]:
        """Yields the trials that an earlier searcher left, then new ones up to `trials`."""
        from optuna.trial import Trial, TrialState

        found = self._study.get_trials(deepcopy=False)
        for frozen in found:
            if frozen.state == TrialState.RUNNING:
                yield Trial(self._study, frozen._trial_id)
        for _ in range(trials - len(found)):
            yield self._study.ask()

    def begin(self, place: Place) -> TrialRun | None:
        """Begins a trial, with new settings or those drawn before; None if no trial is left."""
        trial = next(self._waiting, None)
        if trial is None:
            return None
        space = self._search.space
        values = {key: _drawn(trial, key, one) for key, one in space.settings.items()}
        folder = self._search.run_folder(trial.number)
        arguments = self._search.arguments(trial.number, values)
        goes_on = "goes on" if folder.exists() else "begins"
        say(f"{folder.name} {goes_on}: {' '.join(space.overrides(values))}")
        self.write_result()
        run = TrialRun(folder, arguments, place)
        run.steps = self._train(trial, run)
        return run

    def _train(self, trial: "Trial", run: TrialRun) -> Iterator[None]:
        """Trains a trial to its end; tells Optuna the metric of each epoch and of the best."""
        from optuna.trial import TrialState

        known = set(self._study.get_trials(deepcopy=False)[trial.number].intermediate_values)
        for _ in run.follow():
            self._report(trial, run, known)
            yield
        self._report(trial, run, known)
        name, metric = run.folder.name, self._search.space.metric
        values = [metric_of(metric, epoch) for epoch in read_epochs(run.folder)]
        finite = [value for value in values if value is not None and math.isfinite(value)]
        if run.has_ended() and finite:
            best = min(finite) if self._search.space.minimises else max(finite)
            say(f"{name} ended: {metric} {best:.5g}")
            self._study.tell(trial, best)
        elif run.to_stop and not run.has_ended():
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            reason = run.failure or f"no epoch records {metric}"
            complain(f"{run.folder}: failed: {reason}")
            trial.set_user_attr(REASON, reason)
            self._study.tell(trial, state=TrialState.FAIL)
        self.write_result()

    def _report(self, trial: "Trial", run: TrialRun, known: set[int]) -> None:
        """Reports new epochs to Optuna; sets `to_stop` if Optuna prunes the trial."""
        metric = self._search.space.metric
        for epoch in read_epochs(run.folder):
            value = metric_of(metric, epoch)
            if value is None or epoch.number in known:
                continue
            known.add(epoch.number)
            trial.report(value, epoch.number)
            run.to_stop = run.to_stop or trial.should_prune()
            if run.to_stop or console.is_terminal:
                shown = f"epoch {epoch.number}, {metric} {value:.5g}"
                say(f"{run.folder.name} {shown}{', to be pruned' if run.to_stop else ''}")

    def write_result(self) -> None:
        """Writes `result.json`: all trials of the study, the best first."""
        outcomes = [
            TrialRecord(
                number=one.number,
                state=STATES[one.state.name],
                value=one.value,
                epochs=len(one.intermediate_values),
                settings={
                    key: place.by_label[one.params[key]]
                    if isinstance(place, Choices)
                    else one.params[key]
                    for key, place in self._search.space.settings.items()
                    if key in one.params
                },
                reason=str(one.user_attrs.get(REASON, "")),
            )
            for one in self._study.get_trials(deepcopy=False)
        ]
        self._search.write(outcomes)


def _open_study(search: Search) -> "Study":
    if find_spec("optuna") is None:
        raise InputError("optuna is not installed; pip install 'bigtrk[search]'")
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    space, pruning, path = search.space, search.space.pruning, search.folder / JOURNAL
    lost = InputError(
        f"{path}: lists no trials, but the folder holds some; restore {JOURNAL}, or choose "
        f"another --out"
    )
    has_folders = any(search.folder.glob("trial[0-9]*"))
    if has_folders and not (path.exists() and path.stat().st_size):
        raise lost
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="search",
            direction="minimize" if space.minimises else "maximize",
            load_if_exists=True,
        )
        drawn = len(study.get_trials(deepcopy=False))
    except Exception as error:  # the storage may raise anything for a foreign file
        raise InputError(
            f"{path}: cannot be read by Optuna ({type(error).__name__}: {reason(error)}); "
            f"restore it, or choose another --out"
        ) from error
    if has_folders and not drawn:
        raise lost
    # With the same seed again, the sampler would repeat its draws.
    seed = int(np.random.SeedSequence([space.seed, drawn]).generate_state(1)[0])
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    study.sampler = samplers[space.sampler](seed=seed)
    study.pruner = optuna.pruners.NopPruner()
    if pruning:
        study.pruner = optuna.pruners.SuccessiveHalvingPruner(
            min_resource=pruning.first, reduction_factor=pruning.factor
        )
    return study


def _drawn(trial: "Trial", key: str, place: Range | Choices) -> Any:
    """Returns the trial's value of setting `key`, drawn now unless it was drawn before."""
    if isinstance(place, Choices):
        return place.by_label[trial.suggest_categorical(key, list(place.by_label))]
    if place.is_whole:
        low, high, step = int(place.low), int(place.high), int(place.spacing)
        return trial.suggest_int(key, low, high, log=place.log, step=step)
    return trial.suggest_float(key, place.low, place.high, log=place.log, step=place.step)
