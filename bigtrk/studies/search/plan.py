"""Plans a search: its file with metric and settings, its command line, its trials' trainings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bigtrk.config import (
    Settings,
    keys,
    load_settings,
    overlap,
    override,
    parse,
    read_yaml,
    types_of_setting,
)
from bigtrk.disk.files import disk_errors
from bigtrk.disk.safe_yaml import EACH
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
from bigtrk.studies.launch import open_study, split_study
from bigtrk.training.data.event_source import split_validation
from bigtrk.training.schedule import check_recorded
from bigtrk.training.settings import MINIMISED, Configuration, Metric, users_configuration

# Settings that a search makes, and the way to choose them.
SET_HERE = {
    "run.folder": "use --out",
    "training.best.metric": "set 'metric' in SPACE.yaml",
}
SAME = ("metric", "space", "sampler", "pruning", "population", "seed", "configuration")
# The settings that a resumed run may change and that affect its training.
CHANGED = ("optimizer.", "training.spike_")
SCHEDULE = "optimizer.schedule"


class Range(Settings):
    """Numbers from `low` to `high`, both included; whole numbers if both are written as such."""

    low: int | float
    high: int | float
    log: bool = False
    """Draw the logarithm evenly, not the number."""
    step: Annotated[int | float, Field(gt=0)] | None = None
    """Draw `low` plus a multiple of `step`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; swap them")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low} has no logarithm; raise it above 0, or leave log out")
        if self.log and self.step is not None:
            raise ValueError("log and step cannot be combined; leave one out")
        if self.is_whole and not isinstance(self.step, int | None):
            raise ValueError(f"step {self.step} must be a whole number, since low and high are")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the range holds whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def spacing(self) -> int | float:
        """The distance between two values; 0 for real numbers."""
        return self.step or int(self.is_whole)

    def drawn(self, rng: np.random.Generator) -> int | float:
        """Returns a random number of the range."""
        low, high = self.low, self.high
        if self.log:
            return self._nearest(float(np.exp(rng.uniform(np.log(low), np.log(high)))))
        if step := self.spacing:
            return low + step * int(rng.integers(int((high - low) / step + 1e-9) + 1))
        return float(rng.uniform(low, high))

    def moved(self, value: float, factor: float, rng: np.random.Generator) -> int | float:
        """Returns the value multiplied or divided by `factor`, at random, within the range."""
        return self._nearest(value * factor if rng.random() < 0.5 else value / factor)

    def _nearest(self, value: float) -> int | float:
        """Returns the number in the range that is nearest to `value`."""
        low, high = self.low, self.high
        if step := self.spacing:
            steps = round((value - low) / step)
            value = low + step * min(steps, int((high - low) / step + 1e-9))
        value = min(max(value, low), high)
        return int(value) if self.is_whole else float(value)


class Choices(tuple[Any, ...]):
    """The values among which a setting is drawn, of any type that the setting takes."""

    @property
    def by_label(self) -> dict[str, Any]:
        """Returns the values by their label, JSON text, as Optuna's study stores no lists."""
        return {json.dumps(x): x for x in self}

    def drawn(self, rng: np.random.Generator) -> Any:
        """Returns a random one of the values."""
        return self[int(rng.integers(len(self)))]

    def moved(self, value: Any, _: float, rng: np.random.Generator) -> Any:
        """Returns the value listed before or after `value`, at random."""
        step = 1 if rng.random() < 0.5 else -1
        return self[min(max(self.index(value) + step, 0), len(self) - 1)]


class Pruning(Settings):
    """Asynchronous successive halving (Li et al., arXiv:1810.05934). At epochs `first`, `first` x
    `factor`, `first` x `factor`^2 ..., the best 1/`factor` of the trials at that epoch continue.
    """

    first: int = Field(1, ge=1)
    """The epochs that each trial trains [epochs]."""
    factor: int = Field(3, ge=2)
    """One of this many trials continues."""


class Population(Settings):
    """Population-based training (Jaderberg et al., arXiv:1711.09846): after each round, the worst
    trials continue from checkpoints of the best, with perturbed settings.
    """

    every: int = Field(1, ge=1)
    """The length of a round [epochs]."""
    part: float = Field(0.25, gt=0, le=0.5)
    """The share of the population that is replaced after a round, by as many of the best."""
    factor: float = Field(1.25, gt=1)
    """The factor by which a perturbed number is multiplied or divided."""
    redrawn: float = Field(0.25, ge=0, le=1)
    """The probability that a setting is drawn anew instead."""


class Space(Settings):
    """The file of a search: metric, settings by key, seed; sampler and pruning, or a population."""

    metric: Metric
    settings: dict[str, Any] = Field(min_length=1, alias="space")  # a Range or Choices each
    sampler: Literal["tpe", "random"] = "tpe"
    pruning: Pruning | None = Pruning()
    population: Population | None = None
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = {"sampler", "pruning"} & self.model_fields_set
        if self.population and given:
            named = " and ".join(sorted(given))
            raise ValueError(f"population cannot be combined with {named}; leave one out")
        return self

    @property
    def minimises(self) -> bool:
        """Whether smaller values of the metric are better."""
        return self.metric in MINIMISED

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Writes settings as overrides of a command line, "key.sub=value"."""
        return [override(key, value) for key, value in values.items()]


def read_space(path: Path) -> Space:
    """Reads SPACE.yaml; InputError if it is invalid, or a key is set twice or by the search."""
    types = {key: [{EACH: types_of_setting([Configuration], key)}] for key in keys(Configuration)}
    space = parse(Space, read_yaml(path, [{"space": [types]}]), str(path))
    for key in space.settings:
        for own, remedy in SET_HERE.items():
            if overlap(key, own):
                raise InputError(f"{path}: space.{key}: a search sets {own}; remove it ({remedy})")
    for key, other in combinations(space.settings, 2):
        if overlap(key, other):
            raise InputError(f"{path}: space: {key} and {other} overlap; leave one out")
    places = {key: _parsed(found, f"{path}: space.{key}") for key, found in space.settings.items()}
    return space.model_copy(update={"settings": places})


def _parsed(found: Any, where: str) -> Range | Choices:
    if isinstance(found, dict):
        return parse(Range, found, where)
    if not isinstance(found, list) or not found:
        raise InputError(
            f"{where}: has no values; write bounds, such as {{low: 1, high: 8}}, or a list, such "
            "as [2, 8]"
        )
    try:
        is_repeated = len(Choices(found).by_label) < len(found)
    except TypeError as error:  # YAML knows dates, too
        raise InputError(f"{where}: lists a value no setting takes ({error}); remove it") from None
    if is_repeated:
        raise InputError(f"{where}: a value is listed twice; remove one")
    return Choices(found)


@dataclass(frozen=True)
class Search:
    """A search in `folder`. epochs: the number per trial, if it does not end early."""

    folder: Path
    space: Space
    record: SearchRecord
    epochs: int

    def open(self) -> None:
        """Writes `search.json`; raises InputError as `open_study`."""
        open_study(self.folder / SEARCH, self.record, SAME)

    def run_folder(self, number: int) -> Path:
        return self.folder / trial_name(number)

    def arguments(self, number: int, values: Mapping[str, Any]) -> list[str]:
        """Returns the arguments of bigtrk/train.py for trial `number` with settings `values`."""
        own = f"run.folder={self.run_folder(number)}"
        return [*self.record.given, *self.space.overrides(values), own]

    def write(self, outcomes: Sequence[TrialRecord], rounds: Sequence[RoundRecord] = ()) -> None:
        """Writes `result.json`: all trials, the best first, and a population's rounds."""
        trials = tuple(best_first(outcomes, self.space.minimises))
        record = ResultRecord(metric=self.space.metric, trials=trials, rounds=tuple(rounds))
        with disk_errors():
            write_record(self.folder / RESULT, record)


def plan_search(
    file: Path, arguments: Sequence[str], default: Path, folder: Path, trials: int
) -> Search:
    """Plans a search from a command line: the space, and CONFIG.yaml, key.sub=value and data
    folders in any order. Raises InputError if a key or value of the space fits no setting, no trial
    would record the metric, events are too few, or a population cannot be trained like this.
    """
    space = read_space(file)
    path, overrides = split_study("search", arguments, default, SET_HERE)
    for given in overrides:
        for key in space.settings:
            if overlap(given.partition("=")[0], key):
                raise InputError(f"{given}: {file} varies {key}; remove it there or here")
    common = [*overrides, f"training.best.metric={space.metric}"]
    configuration = users_configuration(path, common)
    known = _held_back(configuration)
    check_recorded(configuration, known)
    for key, place in space.settings.items():  # else a trial would fail only later
        for value in (place.low, place.high) if isinstance(place, Range) else place:
            try:
                one = load_settings(Configuration, path, [*common, override(key, value)])
                check_recorded(one, _held_back(one) if overlap(key, "data") else known)
            except InputError as error:
                raise InputError(f"{file}: cannot try {override(key, value)}: {error}") from None
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


def _held_back(configuration: Configuration) -> int:
    """Returns the number of validation events."""
    data = configuration.data
    return len(split_validation(data.train, data.validation, data.events)[1])


def check_population(file: Path, space: Space, configuration: Configuration, trials: int) -> None:
    """Raises InputError if trials of a population cannot continue with other trials' settings."""
    assert space.population is not None
    training, every = configuration.training, space.population.every
    for key in space.settings:
        if not key.startswith(CHANGED) or key == "optimizer.name":
            raise InputError(
                f"{file}: space.{key}: a population can vary only "
                f"{' and '.join(f'{prefix}*' for prefix in CHANGED)}, but not optimizer.name; "
                f"leave out this key, or 'population'"
            )
    if "cosine" in (configuration.optimizer.schedule, *space.settings.get(SCHEDULE, ())):
        raise InputError(
            f"{SCHEDULE}=cosine: needs to know the last epoch, but a 'population' search "
            f"trains in rounds; choose constant or plateau"
        )
    if training.epochs % every:
        raise InputError(
            f"training.epochs={training.epochs}: must be a multiple of population.every={every}; "
            f"change one of them"
        )
    if trials < 2:
        raise InputError(f"--trials {trials}: a 'population' search needs 2 or more; raise it")
    if training.minutes is not None:
        raise InputError("training.minutes: a 'population' search trains all epochs; leave it out")
