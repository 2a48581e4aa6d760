"""The file of a search: the metric, the settings to be searched, and how."""

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from bigtrk.config import Settings, keys, overlap, override, parse, read_yaml, types_of_setting
from bigtrk.disk.safe_yaml import EACH
from bigtrk.errors import InputError
from bigtrk.training.settings import MINIMISED, Configuration, Metric

# Settings that a search makes, and the way to choose them.
SET_HERE = {
    "run.folder": "use --out",
    "training.best.metric": "name it as the metric of the space",
}


class Range(Settings):
    """Numbers from `low` to `high`, both included; whole ones if both are written so."""

    low: int | float
    high: int | float
    log: bool = False
    """Draw the logarithm evenly, not the number."""
    step: Annotated[int | float, Field(gt=0)] | None = None
    """Draw `low` plus a multiple of it."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}; exchange them")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low} has no logarithm; raise it above 0, or leave log out")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other; leave one out")
        if self.is_whole and not isinstance(self.step, int | None):
            raise ValueError(f"step {self.step} of whole numbers is none; correct it")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def drawn(self, rng: np.random.Generator) -> int | float:
        """Draws a number."""
        low, high = self.low, self.high
        if self.step is not None or (self.is_whole and not self.log):
            step = self.step or 1
            return low + step * int(rng.integers(int((high - low) / step + 1e-9) + 1))
        if not self.log:
            return float(rng.uniform(low, high))
        return self._nearest(float(np.exp(rng.uniform(np.log(low), np.log(high)))))

    def moved(self, value: float, factor: float, rng: np.random.Generator) -> int | float:
        """Multiplies or divides a number by the factor."""
        return self._nearest(value * factor if rng.random() < 0.5 else value / factor)

    def _nearest(self, value: float) -> int | float:
        """Returns the value of the range that is nearest to a number."""
        low, high = self.low, self.high
        if self.step is not None or self.is_whole:
            step = self.step or 1
            steps = round((value - low) / step)
            value = low + step * min(steps, int((high - low) / step + 1e-9))
        value = min(max(value, low), high)
        return int(value) if self.is_whole else float(value)


class Choices(tuple[Any, ...]):
    """Values of which one is drawn; any that a setting may have."""

    @property
    def by_label(self) -> dict[str, Any]:
        """Returns each value by the text that stands for it in the study, which has no lists."""
        return {json.dumps(x): x for x in self}

    def drawn(self, rng: np.random.Generator) -> Any:
        """Draws a value."""
        return self[int(rng.integers(len(self)))]

    def moved(self, value: Any, _: float, rng: np.random.Generator) -> Any:
        """Returns a neighbour of a value."""
        step = 1 if rng.random() < 0.5 else -1
        return self[min(max(self.index(value) + step, 0), len(self) - 1)]


class Pruning(Settings):
    """Asynchronous successive halving (Li et al., arXiv:1810.05934): after `first` epochs, and
    after each `factor` times as many, a trial goes on if it is in the best 1/`factor` of those that
    have come as far.
    """

    first: int = Field(1, ge=1)
    """The epochs that each trial trains [epochs]."""
    factor: int = Field(3, ge=2)
    """The trials of which one goes on."""


class Population(Settings):
    """Population-based training (Jaderberg et al., arXiv:1711.09846): after each round the worst
    trials go on from checkpoints of the best, with settings that are perturbed.
    """

    every: int = Field(1, ge=1)
    """The length of a round [epochs]."""
    part: float = Field(0.25, gt=0, le=0.5)
    """The part of the population that is replaced, and by which it is."""
    factor: float = Field(1.25, gt=1)
    """A number that is perturbed is multiplied or divided by it."""
    redrawn: float = Field(0.25, ge=0, le=1)
    """The probability that a setting is drawn anew instead."""


class Space(Settings):
    """A search: the metric of an epoch, the settings by key, the sampler, the pruning, the seed;
    or a population instead of sampler and pruning.
    """

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
            raise ValueError(f"a population does without {named}; leave it out")
        return self

    @property
    def minimises(self) -> bool:
        """Whether small values of the metric are good."""
        return self.metric in MINIMISED

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Writes settings as they stand on a command line."""
        return [override(key, value) for key, value in values.items()]


def read_space(path: Path) -> Space:
    """Reads a space.

    Raises:
        InputError: unreadable YAML, an unknown word, bounds that are reversed, a key that a search
            sets itself or that another key of the space sets, too.
    """
    types = {key: [{EACH: types_of_setting([Configuration], key)}] for key in keys(Configuration)}
    space = parse(Space, read_yaml(path, [{"space": [types]}]), str(path))
    for key in space.settings:
        for own, remedy in SET_HERE.items():
            if overlap(key, own):
                raise InputError(f"{path}: space.{key}: bigtrk search sets {own}; {remedy}")
    for key, other in combinations(space.settings, 2):
        if overlap(key, other):
            raise InputError(f"{path}: space: {key} and {other} set the same; leave one out")
    places = {key: _place(found, f"{path}: space.{key}") for key, found in space.settings.items()}
    return space.model_copy(update={"settings": places})


def _place(found: Any, where: str) -> Range | Choices:
    if isinstance(found, dict):
        return parse(Range, found, where)
    if not isinstance(found, list) or not found:
        raise InputError(
            f"{where}: write bounds, such as {{low: 1, high: 8}}, or a list of the values to "
            f"choose from"
        )
    choices = Choices(found)
    try:
        labels = choices.by_label
    except TypeError as error:  # YAML knows dates, too
        raise InputError(f"{where}: no setting has such a value ({error}); remove it") from None
    if len(labels) < len(found):
        raise InputError(f"{where}: a value is listed twice; remove one")
    return choices
