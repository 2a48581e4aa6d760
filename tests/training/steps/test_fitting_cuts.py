"""The cuts that fit a memory: every budget above the least, in memory or with edges in files."""

from dataclasses import replace

import numpy as np

from bigtrk.cost.event_size import EventSize
from bigtrk.cost.machines import CPU
from bigtrk.training.fitting import GIB, FittingCuts, make_cost
from bigtrk.training.settings import Configuration

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
