"""The items (events, or sectors trained as mini-batches) that make each step.

They depend on (seed, epoch), the items' costs and their number per step alone, not on the ranks.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Batching = Literal["random", "buckets", "cost"]

# Steps in a bucket: the fewer, the more alike its items and the fewer ways to combine them.
_BUCKET_STEPS = 4
# Costs vary by up to this factor when `cost` sorts them, so that each epoch combines others.
_JITTER = 1.5


def n_steps(n_items: int, per_step: int) -> int:
    """Returns the number of steps in an epoch."""
    return -(-n_items // per_step)


def step_items(
    costs: Sequence[float], per_step: int, seed: int, epoch: int, batching: Batching = "random"
) -> list[list[int]]:
    """Returns the epoch's steps, each a list of item numbers, with every item exactly once.

    `random`: any `per_step` items. `buckets`: `per_step` items of like cost (Farrell 2020, after
    Etalumis, arXiv:1907.03382). `cost`: as many items in each step, at about the same cost.
    """
    generator = np.random.default_rng((seed, epoch))
    if batching == "cost":
        return _packed(np.asarray(costs, float), n_steps(len(costs), per_step), generator)
    if batching == "random":
        return _cut(generator.permutation(len(costs)).tolist(), per_step)
    order = np.argsort(costs, kind="stable")
    buckets = _cut(order.tolist(), per_step * _BUCKET_STEPS)
    shuffled = (generator.permutation(bucket).tolist() for bucket in buckets)
    steps = [step for bucket in shuffled for step in _cut(bucket, per_step)]
    return [steps[i] for i in generator.permutation(len(steps))]


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[i : i + size] for i in range(0, len(order), size)]


def _packed(
    costs: NDArray[np.float64], steps: int, generator: np.random.Generator
) -> list[list[int]]:
    """Packs items into `steps` bins of like cost, equally many in each: round by round, the largest
    item left goes into the bin that has least.
    """
    order = np.argsort(-costs * generator.uniform(1, _JITTER, len(costs)))
    made: list[list[int]] = [[] for _ in range(steps)]
    loads = np.zeros(steps)
    for items in (order[i : i + steps] for i in range(0, len(order), steps)):
        largest = items[np.argsort(-costs[items])]
        lightest = np.argsort(loads, kind="stable")[: len(items)]
        loads[lightest] += costs[largest]
        for step, item in zip(lightest.tolist(), largest.tolist(), strict=True):
            made[step].append(item)
    return [made[i] for i in generator.permutation(steps)]
