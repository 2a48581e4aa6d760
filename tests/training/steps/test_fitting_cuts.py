"""The cuts that fit a memory: every budget above the least, in memory or with edges in files."""

from dataclasses import replace

import numpy as np

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU
from bigtrk.training.costs import make_cost
from bigtrk.training.settings import Configuration
from bigtrk.training.steps.routers import GIB, FittingCuts

EVENT = EventSize(103_783, 2_984_951)  # event 1000, of which half of these budgets were refused


def test_edges_that_fill_the_memory_to_the_last_byte_fit_it() -> None:
    configuration = Configuration.model_validate(
        {"model": {"hidden": 16, "layers": 3}, "training": {"spill": "files"}}
    )
    cost = make_cost(configuration, 1, 1, CPU)
    least = replace(cost, spills_beyond=0.0).memory(EVENT, 1, 1).total / GIB
    most = cost.memory(EVENT, 1, 1).total / GIB
    assert not FittingCuts(configuration, cost, 0.999 * least * GIB).fitting(EVENT)
    for gib in np.linspace(least, most, 50).round(3)[1:]:
        assert FittingCuts(configuration, cost, gib * GIB).fitting(EVENT), gib


def test_the_least_of_a_small_event_is_that_in_memory() -> None:
    """Its edges take less than the blocks in which they would travel to files, and stay there."""
    small, large = EventSize(1_000, 4_000), EVENT
    spilling, without = (
        Configuration.model_validate({"model": {"hidden": 16, "layers": 2}, "training": training})
        for training in ({"spill": "files"}, {})
    )
    cost = make_cost(without, 1, 1, CPU)

    def cuts(configuration: Configuration, budget: float = 0.0) -> FittingCuts:
        return FittingCuts(configuration, cost, budget)

    least, cut = cuts(spilling).least(small)
    assert (least, cut) == cuts(without).least(small)
    assert cuts(spilling).by_parts(small) == cuts(without).by_parts(small)
    assert cuts(spilling).least(large) < cuts(without).least(large)
    enough = cuts(spilling, least)
    assert [*enough.fitting(small)] == [cut]
    assert enough.cost_of([(small, cut)]) is cost
    assert enough.cost_of([(small, cut), (large, cut)]) == enough.spilling
    assert cuts(without, least).cost_of([(large, cut)]) is cost
