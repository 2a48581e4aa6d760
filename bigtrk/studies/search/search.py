"""A search with Optuna: it draws settings, trains them as run folders, and prunes.

Optuna's storage holds the study. A searcher gives signs of life for each of its trials (Optuna's
heartbeat); the trials of a searcher that died are queued again and continue in their run folders.
The lock of a run folder keeps a training that outlived its searcher from being started twice.
"""

import math
import os
import shlex
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from bigtrk.console import complain, console, say
from bigtrk.disk.folder_lock import HeldError
from bigtrk.errors import InputError
from bigtrk.records.metrics import metric_of
from bigtrk.records.run_folder import read_epochs
from bigtrk.records.studies import RESULT, State, TrialRecord, read_search
from bigtrk.reports.search import search_report
from bigtrk.reports.terminal import show
from bigtrk.studies.search.plan import Search, open_search
from bigtrk.studies.search.population import PopulationSearcher
from bigtrk.studies.search.space import Choices, Range, Space
from bigtrk.studies.search.trainings import (
    Asked,
    HostPlace,
    Launcher,
    TrialRun,
    make_launcher,
    noting_signals,
    share_host,
    visible_devices,
)

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RetryHeartbeatStaleTrialCallback
    from optuna.trial import FrozenTrial

LOOK = 0.5  # s between two looks at a training
WAIT = 2.0  # s between two looks at the trials of other searchers
BEAT, GRACE = 10, 40  # s between two signs of life, and until a silent searcher is taken for dead
STUDY, NAME = "study.db", "search"
REASON = "reason"  # attribute of a trial that failed
STATES: dict[str, State] = {
    "RUNNING": "running",
    "WAITING": "running",
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
}


class _StoppedTrial(Exception):  # noqa: N818
    """A trial whose training was asked to save and end; it is queued again."""


class _FailedTrial(Exception):  # noqa: N818
    """A trial whose training cannot go on."""


def run_search(search: Search, trials: int, at_once: int, ranks: int, launcher: str | None) -> None:
    """Trains until `trials` settings have been drawn and trained, or a population of `trials`.

    Raises:
        InputError: the folder holds another search, or the host is too small.
        StoppedError: a signal asked for it.
    """
    chosen = make_launcher(ranks, launcher)
    if launcher is None:
        places = share_host(at_once, ranks, visible_devices())
    else:  # which finds its own cores and GPUs
        places = [HostPlace(0, len(os.sched_getaffinity(0)), ()) for _ in range(at_once)]
    open_search(search)
    if search.space.population:
        PopulationSearcher(search, places, trials, chosen).run()
    else:
        Searcher(search, places, chosen).run(trials)
    show(search_report(read_search(search.folder)), console)
    page = f"bigtrk report {shlex.quote(str(search.folder))} --html PAGE"
    say(f"all trials are in {search.folder / RESULT}; to see them: {page}")


@dataclass
class Searcher:
    """Trains as many trials at once as there are `places`."""

    search: Search
    places: Sequence[HostPlace]
    launcher: Launcher

    def __post_init__(self) -> None:
        """Opens the study; it is made if it is missing.

        Raises:
            InputError: Optuna is not installed, or the study cannot be read.
        """
        self._study, self._retry = _open_study(self.search)
        self._free: SimpleQueue[HostPlace] = SimpleQueue()
        for place in self.places:
            self._free.put(place)
        self._writing = Lock()
        self._stopped: set[int] = set()
        self._asked = Asked()

    def run(self, trials: int) -> None:
        """Searches until `trials` trials have been drawn and none is left.

        Raises:
            StoppedError: a signal asked for it; the trainings have saved.
            InputError: a record is damaged, or the disk refuses.
        """
        with noting_signals() as self._asked:
            while not self._asked.by and (wanted := self._wanted(trials)) is not None:
                if wanted:
                    self._study.optimize(
                        self._train,
                        n_trials=wanted,
                        n_jobs=len(self.places),
                        catch=(_StoppedTrial, _FailedTrial),
                        callbacks=[self._queue_again],
                    )
                else:
                    time.sleep(WAIT)
            self._write_result()
        self._asked.check()

    def _wanted(self, trials: int) -> int | None:
        """Returns how many trials can begin; None once all have ended."""
        import optuna

        optuna.storages.fail_stale_trials(self._study)
        found = self._study.get_trials(deepcopy=False)
        left = max(0, trials - len({_number(one) for one in found}))
        waiting = sum(one.state.name == "WAITING" for one in found)
        if left + waiting or any(one.state.name == "RUNNING" for one in found):
            return left + waiting
        return None

    def _train(self, trial: "Trial") -> float:
        """Trains a trial to its end; returns the metric of its best epoch."""
        frozen = self._study.get_trials(deepcopy=False)[trial.number]
        number = _number(frozen)
        space = self.search.space
        settings = {key: _drawn(trial, key, place) for key, place in space.settings.items()}
        place = self._free.get()
        folder = self.search.run_folder(number)
        run = TrialRun(folder, self.search.arguments(number, settings), self.launcher, place)
        goes_on = "goes on" if folder.exists() else "begins"
        say(f"{folder.name} {goes_on}: {' '.join(space.overrides(settings))}")
        self._write_result()
        try:
            return self._followed(trial, run, set(frozen.intermediate_values))
        finally:
            self._free.put(place)

    def _followed(self, trial: "Trial", run: TrialRun, reported: set[int]) -> float:
        from optuna import TrialPruned

        metric, pruned, seen = self.search.space.metric, False, 0
        while True:
            state = run.state  # before its epochs are read: nothing follows the end
            for epoch in read_epochs(run.folder)[seen:]:
                seen += 1
                value = metric_of(metric, epoch)
                if value is None:
                    continue
                if epoch.number not in reported:
                    trial.report(value, epoch.number)
                pruned = pruned or trial.should_prune()
                shown = f"epoch {epoch.number}, {metric} {value:.5g}"
                if pruned or console.is_terminal:
                    say(f"{run.folder.name} {shown}{', to be pruned' if pruned else ''}")
            if state == "ended":  # its value is known, even if it was to be pruned
                return self._best(trial, run)
            if pruned or self._asked.by:
                if state == "idle" or not run.ask_to_stop():
                    if pruned:
                        raise TrialPruned
                    self._stopped.add(trial.number)
                    raise _StoppedTrial
            elif state == "idle":
                if run.has_failed:
                    self._fail(trial, run, run.failure)
                with suppress(HeldError):  # a training that an earlier searcher started
                    run.launch()
            time.sleep(LOOK)

    def _best(self, trial: "Trial", run: TrialRun) -> float:
        metric = self.search.space.metric
        values = [metric_of(metric, epoch) for epoch in read_epochs(run.folder)]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            self._fail(trial, run, f"no epoch records {metric}")
        best = min(known) if self.search.space.minimises else max(known)
        say(f"{run.folder.name} ended: {metric} {best:.5g}")
        return best

    def _fail(self, trial: "Trial", run: TrialRun, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        complain(f"{run.folder}: failed: {reason}")
        raise _FailedTrial

    def _queue_again(self, study: "Study", frozen: "FrozenTrial") -> None:
        """Queues a trial that was stopped; the same command continues it."""
        if self._asked.by:
            study.stop()
        if frozen.number in self._stopped:
            self._retry(study, frozen)
        self._write_result()

    def _write_result(self) -> None:
        """Writes the trials by the number they were drawn under, each by its newest attempt."""
        with self._writing:
            newest = {_number(one): one for one in self._study.get_trials(deepcopy=False)}
            space = self.search.space
            self.search.write_result([_outcome(n, one, space) for n, one in newest.items()])


def _open_study(search: Search) -> "tuple[Study, RetryHeartbeatStaleTrialCallback]":
    if find_spec("optuna") is None:
        raise InputError("optuna is not installed; pip install 'bigtrk[search]'")
    import optuna
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    url = search.storage or f"sqlite:///{(search.folder / STUDY).resolve()}"
    space = search.space
    try:
        retry = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
        storage = RDBStorage(
            url, heartbeat_interval=BEAT, grace_period=GRACE, heartbeat_stale_trial_callback=retry
        )
        study = optuna.create_study(
            storage=storage,
            study_name=NAME if search.storage is None else str(search.folder.resolve()),
            direction="minimize" if space.minimises else "maximize",
            load_if_exists=True,
        )
        # A sampler that began with the same seed again would draw what was drawn.
        drawn = len(study.get_trials(deepcopy=False))
    except Exception as error:  # whatever a storage raises of a file that it did not write
        raise InputError(
            f"{url}: cannot be opened as a study ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}); restore it, or choose another --out"
        ) from error
    seed = int(np.random.SeedSequence([space.seed, drawn]).generate_state(1)[0])
    study.sampler = (
        optuna.samplers.RandomSampler(seed=seed)
        if space.sampler == "random"
        else optuna.samplers.TPESampler(seed=seed)
    )
    study.pruner = (
        optuna.pruners.SuccessiveHalvingPruner(
            min_resource=space.pruning.first, reduction_factor=space.pruning.factor
        )
        if space.pruning
        else optuna.pruners.NopPruner()
    )
    return study, retry


def _number(trial: "FrozenTrial") -> int:
    """Returns the number that a trial was drawn under, by which its folder is named."""
    return int(trial.system_attrs.get("failed_trial", trial.number))


def _outcome(number: int, trial: "FrozenTrial", space: Space) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=STATES[trial.state.name],
        value=trial.value,
        epochs=len(trial.intermediate_values),
        settings={
            key: place.by_label[trial.params[key]]
            if isinstance(place, Choices)
            else trial.params[key]
            for key, place in space.settings.items()
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
