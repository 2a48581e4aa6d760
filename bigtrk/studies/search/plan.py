"""A search from its command line: what each trial trains, and checks that it can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.config import load_settings, overlap, override
from bigtrk.disk.files import disk_errors
from bigtrk.errors import InputError
from bigtrk.records.record import write_record
from bigtrk.records.studies import (
    RESULT,
    SEARCH,
    ResultRecord,
    RoundRecord,
    SearchRecord,
    TrialRecord,
    best_first,
    trial_name,
)
from bigtrk.studies.search.space import SET_HERE, Range, Space, read_space
from bigtrk.studies.study import open_study, split_study
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.schedule import check_recorded
from bigtrk.training.settings import Configuration, users_configuration

SAME = ("metric", "space", "sampler", "pruning", "population", "seed", "configuration")
# Of the settings that a resumed run may change, those that change what it learns.
CHANGED = ("optimizer.", "training.spike_")
SCHEDULE = "optimizer.schedule"


@dataclass(frozen=True)
class Search:
    """A search in `folder`. epochs: those that each trial trains, if nothing ends it before."""

    folder: Path
    space: Space
    record: SearchRecord
    epochs: int

    def run_folder(self, number: int) -> Path:
        return self.folder / trial_name(number)

    def arguments(self, number: int, values: Mapping[str, Any]) -> list[str]:
        """Returns what bigtrk/train.py is given for a trial with these settings."""
        own = f"run.folder={self.run_folder(number)}"
        return [*self.record.given, *self.space.overrides(values), own]

    def write_result(
        self, outcomes: Sequence[TrialRecord], rounds: Sequence[RoundRecord] = ()
    ) -> None:
        """Writes `result.json`: all trials, the best first, and the rounds of a population.

        Raises:
            InputError: the disk refuses.
        """
        trials = tuple(best_first(outcomes, self.space.minimises))
        record = ResultRecord(metric=self.space.metric, trials=trials, rounds=tuple(rounds))
        with disk_errors():
            write_record(self.folder / RESULT, record)


def plan_search(
    file: Path, arguments: Sequence[str], default: Path, folder: Path, trials: int
) -> Search:
    """Plans the search of a command line: the space, and CONFIG.yaml, key.sub=value and data
    folders in any order.

    Raises:
        InputError: the space names no key of the configuration, a bound or choice is no value of
            its key, no trial would record the metric, there are too few events, or a population
            cannot be trained so.
    """
    space = read_space(file)
    path, overrides = split_study("search", arguments, default, SET_HERE)
    for given in overrides:
        for key in space.settings:
            if overlap(given.partition("=")[0], key):
                raise InputError(
                    f"{given}: the space searches {key}; leave it out of one of the two"
                )
    common = [*overrides, f"training.best.metric={space.metric}"]
    configuration = users_configuration(path, common)
    _check_trials(file, space, path, common, configuration)
    if space.population:
        check_population(file, space, configuration, trials)
    places = space.settings.items()
    record = SearchRecord(
        **space.model_dump(include={"metric", "sampler", "pruning", "seed"}),
        minimises=space.minimises,
        population=space.population and {**space.population.model_dump(), "trials": trials},
        space={key: x.model_dump() if isinstance(x, Range) else list(x) for key, x in places},
        given=(str(path.resolve()), *common),
        configuration=configuration.model_dump(mode="json", exclude={"run"}),
    )
    return Search(folder, space, record, configuration.training.epochs)


def open_search(search: Search) -> None:
    """Writes `search.json`; raises InputError as `open_study`."""
    open_study(search.folder / SEARCH, search.record, SAME)


def _check_trials(
    file: Path, space: Space, path: Path, common: Sequence[str], configuration: Configuration
) -> None:
    """Checks each extreme of the space alone: a trial that cannot train would show only later."""
    held_back = _held_back(configuration)
    check_recorded(configuration, held_back)
    for key, place in space.settings.items():
        for value in (place.low, place.high) if isinstance(place, Range) else place:
            try:
                one = load_settings(Configuration, path, [*common, override(key, value)])
                check_recorded(one, _held_back(one) if overlap(key, "data") else held_back)
            except InputError as error:
                raise InputError(f"{file}: space.{key}: {error}") from None


def _held_back(configuration: Configuration) -> int:
    """Returns the number of events to validate on."""
    data = configuration.data
    return len(split_validation(data.train, data.validation, data.events)[1])


def check_population(file: Path, space: Space, configuration: Configuration, trials: int) -> None:
    """Checks that trials of a population can go on with each other's settings.

    Raises:
        InputError: they cannot.
    """
    assert space.population is not None
    training, every = configuration.training, space.population.every
    for key in space.settings:
        if not key.startswith(CHANGED) or key == "optimizer.name":
            raise InputError(
                f"{file}: space.{key}: a population changes settings of trainings that go on, "
                f"{', '.join(f'{prefix}*' for prefix in CHANGED)} but optimizer.name; leave out "
                f"the key, or the population"
            )
    if "cosine" in (configuration.optimizer.schedule, *space.settings.get(SCHEDULE, ())):
        raise InputError(
            f"{SCHEDULE}=cosine: falls to the end of a training, which a population does not know "
            f"in its rounds; choose constant or plateau"
        )
    if training.epochs % every:
        raise InputError(
            f"training.epochs={training.epochs}: is no multiple of population.every={every}; "
            f"correct one"
        )
    if trials < 2:
        raise InputError(f"--trials {trials}: a population has at least 2; raise it")
    if training.minutes is not None:
        raise InputError(
            "training.minutes: a population trains its rounds to their end; leave it out"
        )
