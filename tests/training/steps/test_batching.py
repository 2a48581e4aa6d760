"""Steps visit every item once an epoch, in an order that the seed and epoch alone decide."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest

from bigtrk.training.settings import Batching
from bigtrk.training.steps import step_items

ALL = get_args(Batching)
COSTS = np.random.default_rng(0).lognormal(0, 0.6, 200).tolist()


@pytest.mark.parametrize("batching", ALL)
def test_every_item_exactly_once(batching: Batching) -> None:
    steps = step_items(COSTS[:10], 4, seed=3, epoch=5, batching=batching)
    assert len(steps) == 3
    assert sorted(item for step in steps for item in step) == list(range(10))


@pytest.mark.parametrize("batching", ALL)
def test_order_follows_seed_and_epoch(batching: Batching) -> None:
    def steps(seed: int, epoch: int) -> list[list[int]]:
        return step_items(COSTS, 4, seed, epoch, batching)

    assert steps(0, 0) == steps(0, 0)
    assert len({str(steps(0, 0)), str(steps(0, 1)), str(steps(1, 0))}) == 3
    together = [{frozenset(step) for step in steps(0, epoch)} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < 0.2 * len(together[0]), "other items meet"


def test_random_steps_are_of_equal_length() -> None:
    assert [len(step) for step in step_items([1.0] * 10, 4, 0, 0)] == [4, 4, 2]


def spread(steps: list[list[int]]) -> float:
    """Computes the spread of a step's costs, relative to their mean, as the mean over steps."""
    costs = [[COSTS[item] for item in step] for step in steps]
    return float(np.mean([np.std(step) / np.mean(step) for step in costs]))


def test_a_bucket_holds_items_of_like_cost() -> None:
    buckets, random = (step_items(COSTS, 4, 0, 0, kind) for kind in ("buckets", "random"))
    assert spread(buckets) < 0.25 * spread(random)
    assert {len(step) for step in buckets} == {4}
    order = [COSTS[step[0]] for step in buckets]
    assert any(a > b for a, b in pairwise(order)), "steps are shuffled"


def test_steps_of_equal_cost() -> None:
    def totals(batching: Batching) -> list[float]:
        return [sum(COSTS[i] for i in step) for step in step_items(COSTS, 4, 0, 0, batching)]

    packed, random = totals("cost"), totals("random")
    assert len(packed) == len(random) == 50
    assert max(packed) / np.mean(packed) < 1.1 < max(random) / np.mean(random)
