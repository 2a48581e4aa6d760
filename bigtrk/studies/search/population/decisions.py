"""Who goes on from whose checkpoint, and with which settings: functions of the seed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigtrk.studies.search.space import Choices, Population, Range, Space


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
