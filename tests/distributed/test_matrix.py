"""A part of the parity matrix: every engine, number of sectors and of sectors on a rank, kind of
graph and setting once.

All of it: `python scripts/parity/parity_matrix.py`.
"""

import pytest

from bigtrk.parallel.ranks import Ranks
from tests.distributed.matrix import (
    ENGINES,
    KINDS,
    MICRO_STEPS,
    PER_RANK,
    RECOMPUTE,
    SECTORS,
    Case,
    Trial,
    run_trials,
)
from tests.distributed.ranks import run_ranks

# Of engines that shard, ranks have different numbers of sectors.
CHOSEN = [
    Trial(2, "DDP coalesced", "fp64", "layer", 3, pt_weight=0.3),
    Trial(3, "FSDP2", "fp64", "offload", 3, per_rank=2),
    Trial(8, "ZeRO-0", "fp32", "none", 3, pt_weight=0.3, per_rank=4),
    Trial(2, "ZeRO-1", "fp32", "none", 3, pt_weight=0.3),
    Trial(3, "ZeRO-2", "fp32", "layer", 1, pt_weight=0.3, per_rank=2),
    Trial(3, "ZeRO-3", "fp32", "chunk", 3, pt_weight=0.3, per_rank=2),
    Trial(1, "DDP", "fp64", "none", 1),
    Trial(4, "FSDP2 hybrid", "fp64", "chunk", 1),
]
# In an empty sector ranks could wait for each other, whatever the engine; it takes one other kind.
EMPTY = "empty sector"
OTHERS = [kind for kind in KINDS if kind != EMPTY]
QUICK: dict[Trial, tuple[str, ...]] = {
    trial: (EMPTY, OTHERS[i % len(OTHERS)]) for i, trial in enumerate(CHOSEN)
}


def test_the_part_has_every_value_of_the_whole() -> None:
    assert {trial.engine for trial in CHOSEN} == set(ENGINES)
    assert {trial.recompute for trial in CHOSEN} == set(RECOMPUTE)
    assert {trial.sectors for trial in CHOSEN} >= set(SECTORS)
    assert {trial.per_rank for trial in CHOSEN} == set(PER_RANK)
    assert {trial.micro_steps for trial in CHOSEN} == set(MICRO_STEPS)
    assert {kind for kinds in QUICK.values() for kind in kinds} == set(KINDS)


def work(ranks: Ranks, chosen: dict[Trial, tuple[str, ...]]) -> list[Case]:
    return [case for trial, kinds in chosen.items() for case in run_trials(ranks, [trial], kinds)]


def run(chosen: dict[Trial, tuple[str, ...]]) -> list[Case]:
    """Runs each trial on its kinds of graphs."""
    worlds = sorted({trial.world_size for trial in chosen})
    of_world = {
        world: {trial: kinds for trial, kinds in chosen.items() if trial.world_size == world}
        for world in worlds
    }
    return [
        case
        for world, of in of_world.items()
        for case in run_ranks(world, work, of, fresh=world == 4)[0]
    ]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return run(QUICK)


def test_training_in_sectors_equals_the_whole_graph(cases: list[Case]) -> None:
    assert len(cases) == 2 * len(CHOSEN)
    assert [case.row() for case in cases if not case.passed] == []


def test_an_error_would_be_seen(cases: list[Case]) -> None:
    """Differences are rounding, not zeros of comparisons that compare nothing."""
    for trial in CHOSEN:
        assert max(case.gradients for case in cases if case.trial == trial) > 0, trial
