"""Trials of a population go on from others, with changed settings."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bigtrk.errors import InputError
from bigtrk.records.studies import RoundRecord
from bigtrk.studies.search.plan import Choices, Population, Range, Space, check_population
from bigtrk.studies.search.population import decide, first_settings
from bigtrk.training.settings import Configuration

RATE = Range(low=1e-3, high=1e-1, log=True)
SETTINGS: dict[str, Range | Choices] = {
    "optimizer.lr": RATE,
    "optimizer.plateau_patience": Range(low=2, high=10, step=2),
    "optimizer.lr_scaling": Choices(("none", "sqrt", "linear")),
}


def space(seed: int = 0, metric: str = "loss", **changes: float) -> Space:
    population = Population(**{"part": 0.25, "redrawn": 0.0, **changes})
    return Space(metric=metric, space=SETTINGS, population=population, seed=seed)


def standings(*values: float | None) -> list[RoundRecord]:
    """Trial n has the learning rate 0.002 (n + 1)."""
    return [standing(n, x, 0.002 * (n + 1), 4, "sqrt") for n, x in enumerate(values)]


def standing(trial: int, value: float | None, *settings: Any) -> RoundRecord:
    own = dict(zip(SETTINGS, settings, strict=True))
    return RoundRecord(round=0, trial=trial, value=value, settings=own, epochs=1)


def test_the_worst_go_on_from_the_best() -> None:
    at = standings(0.5, 0.1, 0.9, 0.3, 0.2, 0.8, 0.4, 0.6)
    sources = [[decide(space(), n, trial, at)[0] for trial in range(8)] for n in range(1, 101)]
    drawn = Counter(source for row in sources for source in (row[2], row[5]))
    assert set(drawn) == {1, 4}, "of the two largest losses, from the two smallest"
    assert min(drawn.values()) > 60
    assert {source for row in sources for k, source in enumerate(row) if k not in (2, 5)} == {None}
    better_large = [decide(space(metric="auc"), 1, trial, at)[0] for trial in range(8)]
    assert [k for k, source in enumerate(better_large) if source is not None] == [1, 4]
    assert decide(space(), 1, 0, at) == (None, at[0].settings)


def test_who_has_failed_goes_on_from_the_best_that_has_not() -> None:
    at = standings(None, 0.3, None, 0.2)
    for n in range(1, 41):
        assert [decide(space(), n, trial, at)[0] for trial in range(4)] == [3, None, 3, None]
    with pytest.raises(InputError, match="all trials have failed"):
        decide(space(), 1, 0, standings(None, None))


def test_settings_are_moved_by_a_factor_or_to_a_neighbour() -> None:
    at = standings(0.1, 0.2, 0.3, 0.9)
    moved = [decide(space(factor=1.5), n, 3, at)[1] for n in range(1, 200)]
    rates = {round(one["optimizer.lr"] / 0.002, 6) for one in moved}
    assert rates == {1.5, round(1 / 1.5, 6)}
    assert {one["optimizer.plateau_patience"] for one in moved} == {6, 2}
    assert {one["optimizer.lr_scaling"] for one in moved} == {"none", "linear"}


def test_settings_stay_in_their_bounds() -> None:
    at = standings(0.1, 0.9)
    at[0] = standing(0, 0.1, 0.095, 10, "linear")
    for redrawn in (0.0, 0.5, 1.0):
        for n in range(1, 60):
            _, found = decide(space(redrawn=redrawn), n, 1, at)
            assert 1e-3 <= found["optimizer.lr"] <= 1e-1
            assert found["optimizer.plateau_patience"] in (2, 4, 6, 8, 10)
            assert found["optimizer.lr_scaling"] in ("none", "sqrt", "linear")


def test_first_settings_are_spread_over_the_space() -> None:
    drawn = [first_settings(space(), trial) for trial in range(400)]
    assert drawn == [first_settings(space(), trial) for trial in range(400)]
    logs = [math.log10(one["optimizer.lr"]) for one in drawn]
    assert min(logs) >= -3
    assert max(logs) <= -1
    assert sum(logs) / len(logs) == pytest.approx(-2, abs=0.1), "even in the logarithm"
    counts = Counter(one["optimizer.plateau_patience"] for one in drawn)
    assert set(counts) == {2, 4, 6, 8, 10}
    assert min(counts.values()) > 40
    assert type(drawn[0]["optimizer.plateau_patience"]) is int


@pytest.mark.parametrize(
    ("settings", "training", "trials", "said"),
    [
        ({"model.hidden": RATE}, {}, 4, "space.model.hidden: a population can vary only"),
        ({"optimizer.name": Choices(("adamw", "muon"))}, {}, 4, "space.optimizer.name: a popul"),
        (
            *({"optimizer.schedule": Choices(("constant", "cosine"))}, {}, 4),
            "optimizer.schedule=cosine: needs to know the last epoch",
        ),
        ({}, {"epochs": 5}, 4, "training.epochs=5: must be a multiple of population.every=2"),
        ({}, {"epochs": 4, "minutes": 1}, 4, "training.minutes: a 'population' search trains"),
        ({}, {}, 1, "--trials 1: a 'population' search needs 2 or more"),
    ],
)
def test_what_a_population_cannot_do_is_refused(
    settings: dict[str, Range | Choices], training: dict[str, float], trials: int, said: str
) -> None:
    one = Space(metric="loss", space=settings or SETTINGS, population=Population(every=2))
    configuration = Configuration.model_validate({"training": training})
    with pytest.raises(InputError, match=said):
        check_population(Path("space.yaml"), one, configuration, trials)
