"""A part of the parity matrix: every engine, number of sectors, kind of graph and setting once.

All of it: `python scripts/parity/parity_matrix.py`.
"""

import pytest

from tests.distributed.matrix import (
    ENGINES,
    KINDS,
    MICRO_STEPS,
    RECOMPUTE,
    SECTORS,
    Case,
    Trial,
    run_trials,
)
from tests.distributed.ranks import run_ranks

CHOSEN = [
    *(
        Trial(2, engine, precisions[0], RECOMPUTE[i % len(RECOMPUTE)], 3, pt_weight=0.3)
        for i, (engine, precisions) in enumerate(ENGINES.items())
        if engine not in ("DDP", "FSDP2 hybrid")
    ),
    Trial(1, "DDP", "fp64", "none", 1),
    Trial(3, "DDP", "fp64", "layer", 1),
    Trial(3, "FSDP2", "fp64", "offload", 3),
    Trial(4, "FSDP2 hybrid", "fp64", "layer", 1),
]


def test_the_part_has_every_value_of_the_whole() -> None:
    assert {trial.engine for trial in CHOSEN} == set(ENGINES)
    assert {trial.recompute for trial in CHOSEN} == set(RECOMPUTE)
    assert {trial.sectors for trial in CHOSEN} == set(SECTORS)
    assert {trial.micro_steps for trial in CHOSEN} == set(MICRO_STEPS)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    worlds = sorted({trial.world_size for trial in CHOSEN})
    return [
        case
        for world in worlds
        for case in run_ranks(world, run_trials, [t for t in CHOSEN if t.world_size == world])[0]
    ]


def test_training_in_sectors_equals_the_whole_graph(cases: list[Case]) -> None:
    assert len(cases) == len(CHOSEN) * len(KINDS)
    assert [case.row() for case in cases if not case.passed] == []


def test_an_error_would_be_seen(cases: list[Case]) -> None:
    """Differences are rounding, not zeros of comparisons that compare nothing."""
    for trial in CHOSEN:
        assert max(case.gradients for case in cases if case.trial == trial) > 0, trial
