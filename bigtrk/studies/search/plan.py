"""A search from its command line: what each trial trains, and checks that it can."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bigtrk.config import load_settings, overlap
from bigtrk.disk.files import disk_errors, write_new_json
from bigtrk.disk.local_files import network_file_system
from bigtrk.errors import InputError
from bigtrk.planning.command import split_arguments
from bigtrk.records.record import write_record
from bigtrk.records.studies import (
    RESULT,
    SEARCH,
    ResultRecord,
    RoundRecord,
    SearchRecord,
    TrialRecord,
    best_first,
    read_search_record,
    trial_name,
)
from bigtrk.studies.launch import first_difference
from bigtrk.studies.search.space import SET_HERE, Choices, Space, read_space
from bigtrk.training.best import check_recorded
from bigtrk.training.data.event_source import EventSource, split_validation
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration

_SAME = ("metric", "space", "sampler", "pruning", "population", "seed", "configuration")
# Of the settings that a resumed run may change, those that change what it learns.
CHANGED = ("optimizer.", "training.spike_")
SCHEDULE, OPTIMIZER = "optimizer.schedule", "optimizer.name"
FEWEST = 2  # trials of a population


@dataclass(frozen=True)
class Search:
    """A search in `folder`. given: the arguments that all trials have in common; epochs: those that
    each trains, if nothing ends it before. storage: the URL of a database that holds the study; a
    file in the folder if None.
    """

    folder: Path
    space: Space
    given: tuple[str, ...]
    record: SearchRecord
    epochs: int
    storage: str | None = None

    def run_folder(self, number: int) -> Path:
        return self.folder / trial_name(number)

    def arguments(self, number: int, values: Mapping[str, Any]) -> list[str]:
        """Returns what bigtrk/train.py is given for a trial with these settings."""
        own = f"run.folder={self.run_folder(number)}"
        return [*self.given, *self.space.overrides(values), own]

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
    file: Path,
    arguments: Sequence[str],
    default: Path,
    folder: Path,
    storage: str | None,
    trials: int,
) -> Search:
    """Plans the search of a command line: the space, and CONFIG.yaml, key.sub=value and data
    folders in any order. storage: the URL of a database for the study, as Optuna takes it.

    Raises:
        InputError: the space names no key of the configuration, a bound or choice is no value of
            its key, no trial would record the metric, there are too few events, a population cannot
            be trained so, or SQLite would lie on a network disk.
    """
    space = read_space(file)
    path, overrides, folders = split_arguments(arguments, default)
    data = [f"data.train={json.dumps([str(folder) for folder in folders])}"] if folders else []
    _refuse(space, [*overrides, *data])
    common = [*overrides, *data, f"training.best.metric={space.metric}"]
    configuration = users_configuration(path, common)
    _check_trials(file, space, path, common, configuration)
    if space.population:
        check_population(file, space, configuration, trials)
    kind = network_file_system(folder)
    if kind and storage is None and not space.population:
        raise InputError(
            f"{folder}: lies on a network disk ({kind}), where SQLite may lose what it writes; "
            f"name a database by --storage URL, or choose an --out on a local disk"
        )
    members = {**space.population.model_dump(), "trials": trials} if space.population else None
    given = (str(path.resolve()), *common)
    record = SearchRecord(
        metric=space.metric,
        minimises=space.minimises,
        sampler=space.sampler,
        pruning=space.pruning.model_dump() if space.pruning else None,
        seed=space.seed,
        population=members,
        space={
            key: list(place.values) if isinstance(place, Choices) else place.model_dump()
            for key, place in space.settings.items()
        },
        given=given,
        configuration=configuration.model_dump(mode="json", exclude={"run"}),
    )
    return Search(folder, space, given, record, configuration.training.epochs, storage)


def open_search(search: Search) -> None:
    """Writes `search.json`, or checks that the search in the folder is this one; several may do so
    at once.

    Raises:
        InputError: the folder holds another search, or something else.
    """
    wanted = search.record.model_dump(mode="json")
    with disk_errors():
        search.folder.mkdir(parents=True, exist_ok=True)
        holds = [path for path in search.folder.iterdir() if not path.name.startswith(".")]
        if holds and not (search.folder / SEARCH).exists():
            raise InputError(f"{search.folder}: holds something else; choose another --out")
        try:
            write_new_json(search.folder / SEARCH, wanted)
            return
        except FileExistsError:
            found = read_search_record(search.folder).model_dump(mode="json")
    for what in _SAME:
        if found[what] != wanted[what]:
            raise InputError(
                f"{search.folder}: holds a search of another {what} "
                f"({first_difference(found[what], wanted[what])}); choose another --out"
            )


def _refuse(space: Space, overrides: Sequence[str]) -> None:
    for given in overrides:
        key = given.partition("=")[0]
        for own, remedy in SET_HERE.items():
            if overlap(key, own):
                raise InputError(f"{given}: bigtrk search sets {own}; {remedy}")
        for searched in space.settings:
            if overlap(key, searched):
                raise InputError(
                    f"{given}: the space searches {searched}; leave it out of one of the two"
                )


def _check_trials(
    file: Path, space: Space, path: Path, common: Sequence[str], configuration: Configuration
) -> None:
    """Checks each extreme of the space alone: a trial that cannot train would show only later."""
    validation = _validation(configuration)
    check_recorded(configuration, len(validation))
    for key, extreme in space.corners():
        try:
            at_extreme = load_settings(Configuration, path, [*common, extreme])
            if overlap(key, "data"):
                validation = _validation(at_extreme)
            check_recorded(at_extreme, len(validation))
        except InputError as error:
            raise InputError(f"{file}: space.{key}: {error}") from None


def _validation(configuration: Configuration) -> list[EventSource]:
    data = configuration.data
    return split_validation(data.train, data.validation, data.events)[1]


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
