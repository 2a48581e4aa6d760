"""Routing: every event whole once a step, aligned blocks, equal micro-steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.parallel.routing import MicroStep, Share, route, usable_parts


def shares(micro_steps: list[MicroStep]) -> list[tuple[int, Share]]:
    return [(rank, share) for step in micro_steps for rank, share in enumerate(step) if share]


@given(
    stored=st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=12),
    world_size=st.integers(1, 9),
)
def test_every_part_of_every_event_is_computed_once(stored: list[int], world_size: int) -> None:
    micro_steps = route(range(len(stored)), stored, world_size)
    placed = sorted((share.event, share.part) for _, share in shares(micro_steps))
    expected = [
        (event, part)
        for event, parts in enumerate(stored)
        for part in range(usable_parts(parts, world_size))
    ]
    assert placed == expected
    assert all(len(micro_step) == world_size for micro_step in micro_steps)


@given(
    stored=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=12),
    world_size=st.integers(1, 9),
)
def test_an_event_occupies_an_aligned_block_in_order(stored: list[int], world_size: int) -> None:
    for rank, share in shares(route(range(len(stored)), stored, world_size)):
        assert share.first_rank % share.parts == 0
        assert rank == share.first_rank + share.part


@pytest.mark.parametrize(
    ("stored", "world_size", "expected"),
    [(8, 2, 2), (8, 3, 2), (8, 1, 1), (3, 3, 3), (3, 4, 3), (1, 64, 1), (16, 9, 8)],
)
def test_sectors_merge_to_what_the_ranks_can_hold(
    stored: int, world_size: int, expected: int
) -> None:
    assert usable_parts(stored, world_size) == expected


def test_whole_events_fill_the_ranks_beside_a_cut_one() -> None:
    # 4 ranks: the cut event takes a block of 2, two whole events the other two ranks.
    micro_steps = route([0, 1, 2], [1, 2, 1], 4)
    assert len(micro_steps) == 1
    assert [share.event for _, share in shares(micro_steps)] == [1, 1, 0, 2]
