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
from bigtrk.records.search import SEARCH, SearchRecord, read_search_record, trial_name
from bigtrk.studies.difference import first_difference
from bigtrk.studies.search.population import check_population
from bigtrk.studies.search.space import SET_HERE, Choices, Range, Space, read_space
from bigtrk.training.best import check_recorded
from bigtrk.training.data.event_source import EventSource, split_validation
from bigtrk.training.named_code import users_configuration
from bigtrk.training.settings import Configuration

_SAME = ("metric", "space", "sampler", "pruning", "population", "seed", "configuration")


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
        """Returns the run folder of a trial."""
        return self.folder / trial_name(number)

    def arguments(self, number: int, values: Mapping[str, Any]) -> list[str]:
        """Returns what bigtrk/train.py is given for a trial with these settings."""
        own = f"run.folder={self.run_folder(number)}"
        return [*self.given, *self.space.overrides(values), own]


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
    given = (str(path.resolve()), *common)
    _check_disk(folder, space, storage)
    record = SearchRecord(
        metric=space.metric,
        minimises=space.minimises,
        sampler=space.sampler,
        pruning=space.pruning.model_dump() if space.pruning else None,
        seed=space.seed,
        population=_members(space, trials),
        space={key: _recorded(place) for key, place in space.settings.items()},
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
    with disk_errors():
        search.folder.mkdir(parents=True, exist_ok=True)
        holds = [path for path in search.folder.iterdir() if not path.name.startswith(".")]
        if holds and not (search.folder / SEARCH).exists():
            raise InputError(f"{search.folder}: holds something else; choose another --out")
        try:
            write_new_json(search.folder / SEARCH, search.record.model_dump(mode="json"))
        except FileExistsError:
            _check_same(search)


def _check_same(search: Search) -> None:
    there = read_search_record(search.folder)
    wanted = search.record.model_dump(mode="json")
    found = there.model_dump(mode="json")
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


def _check_disk(folder: Path, space: Space, storage: str | None) -> None:
    kind = network_file_system(folder)
    if kind and storage is None and not space.population:
        raise InputError(
            f"{folder}: lies on a network disk ({kind}), where SQLite may lose what it writes; "
            f"name a database by --storage URL, or choose an --out on a local disk"
        )


def _members(space: Space, trials: int) -> dict[str, float] | None:
    return {**space.population.model_dump(), "trials": trials} if space.population else None


def _recorded(place: Range | Choices) -> Any:
    return list(place.values) if isinstance(place, Choices) else place.model_dump()
