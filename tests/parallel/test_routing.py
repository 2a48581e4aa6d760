"""Routing: every event once a step, on aligned blocks, as soon done as can be found."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.parallel.routing import (
    WHOLE,
    Assignment,
    Cut,
    MicroStep,
    RoutedEvent,
    Router,
    as_stored,
    even_cut,
    finer_cuts,
    lay_out,
    possible_parts,
    usable_parts,
)

events = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.integers(1, 1000)), min_size=1, max_size=12
)
worlds = st.integers(1, 9)


def shares(micro_steps: list[MicroStep]) -> list[tuple[int, Assignment]]:
    return [(rank, share) for step in micro_steps for rank, share in enumerate(step) if share]


def flexible(stored: list[tuple[int, int]], world_size: int, overhead: float = 0.1) -> Router:
    """Events that take edges / K seconds in K sectors, and an overhead for more than one."""
    seconds = [
        {Cut(k, k): edges / k + overhead * (k > 1) for k in possible_parts(parts, world_size)}
        for parts, edges in stored
    ]
    return Router(seconds, world_size)


@given(stored=events, world_size=worlds, automatic=st.booleans(), lockstep=st.booleans())
def test_every_part_of_every_event_is_computed_once_by_an_aligned_block(
    stored: list[tuple[int, int]], world_size: int, automatic: bool, lockstep: bool
) -> None:
    router = flexible(stored, world_size) if automatic else as_stored(stored, world_size, lockstep)
    micro_steps = router.route(range(len(stored)))
    assert all(len(micro_step) == world_size for micro_step in micro_steps)
    assert all(any(micro_step) for micro_step in micro_steps)
    placed = shares(micro_steps)
    for rank, share in placed:
        assert share.first_rank % share.parts == 0
        assert rank == share.first_rank + share.part
        assert share.parts == share.ranks in router.num_ranks
    chosen = {share.event: share.parts for _, share in placed}
    assert sorted(chosen) == list(range(len(stored)))
    found = sorted((share.event, share.part) for _, share in placed)
    assert found == [(e, part) for e, parts in sorted(chosen.items()) for part in range(parts)]
    if not automatic:
        assert all(chosen[e] == usable_parts(p, world_size) for e, (p, _) in enumerate(stored))


@pytest.mark.parametrize(
    ("stored", "world_size", "expected"),
    [
        (8, 2, [1, 2]),
        (8, 3, [1, 2]),
        (8, 1, [1]),
        (3, 3, [1, 2, 3]),
        (3, 4, [1, 2, 3]),
        (1, 64, [1]),
        (16, 9, [1, 2, 4, 8]),
    ],
)
def test_sectors_merge_to_what_the_ranks_can_hold(
    stored: int, world_size: int, expected: list[int]
) -> None:
    assert possible_parts(stored, world_size) == expected
    assert usable_parts(stored, world_size) == expected[-1]


@pytest.mark.parametrize(
    ("stored", "world_size", "ranks"),
    [(8, 1, 1), (8, 2, 2), (8, 3, 3), (8, 5, 4), (8, 6, 4), (8, 8, 8), (3, 2, 2), (3, 8, 3)],
)
def test_all_stored_sectors_take_the_ranks_that_make_it_soonest(
    stored: int, world_size: int, ranks: int
) -> None:
    assert even_cut(stored, world_size) == Cut(stored, ranks)


def test_finer_cuts_have_several_sectors_on_a_rank() -> None:
    assert finer_cuts(1, 4) == finer_cuts(2, 1)[1:] == []
    assert finer_cuts(4, 2) == [Cut(2, 1), Cut(4, 1), Cut(4, 2)]
    assert finer_cuts(6, 4) == [Cut(2, 1), Cut(4, 1), Cut(4, 2), Cut(6, 1), Cut(6, 2), Cut(6, 3)]


@given(world_size=worlds, data=st.data())
def test_every_sector_is_held_once_however_many_a_rank_has(
    world_size: int, data: st.DataObject
) -> None:
    """The ranks of an event hold contiguous sectors, as many on each, or one more."""
    parts = st.sampled_from([1, 2, 3, 5, 8, 16])
    cuts = data.draw(st.lists(parts.map(lambda k: even_cut(k, world_size)), min_size=1))
    router = Router([{cut: float(cut.parts)} for cut in cuts], world_size)
    placed = shares(router.route(range(len(cuts))))
    for event, (parts_of, ranks) in enumerate(cuts):
        mine = sorted((rank, share) for rank, share in placed if share.event == event)
        assert [share.first_rank % ranks for _, share in mine] == [0] * ranks
        assert [rank for rank, _ in mine] == [mine[0][1].first_rank + i for i in range(ranks)]
        assert [part for _, share in mine for part in share.held] == [*range(parts_of)]
        counts = [len(share.held) for _, share in mine]
        assert max(counts) - min(counts) <= 1


def test_sectors_are_used_where_they_end_the_step_sooner() -> None:
    alone = flexible([(8, 100)], 8)
    assert {share.parts for _, share in shares(alone.route([0]))} == {8}
    # As many events as ranks, all alike: whole, since sectors only add their overhead.
    many = flexible([(8, 100)] * 8, 8)
    assert {share.parts for _, share in shares(many.route(range(8)))} == {1}
    # One event outweighs the others: it alone is shared.
    mixed = flexible([(8, 400), *[(8, 100)] * 4], 8)
    parts = {share.event: share.parts for _, share in shares(mixed.route(range(5)))}
    assert parts == {0: 4, 1: 1, 2: 1, 3: 1, 4: 1}


@given(seconds=st.lists(st.integers(1, 100), min_size=1, max_size=7), world_size=st.integers(1, 3))
def test_ranks_are_balanced_within_the_bound_of_longest_first(
    seconds: list[int], world_size: int
) -> None:
    """Graham (1969) proves at most 4/3 - 1/(3 W) of the best, which is found here by trying all."""
    found = lay_out([RoutedEvent(i, WHOLE, s) for i, s in enumerate(seconds)], world_size).seconds
    best = min(
        max(
            sum(s for s, rank in zip(seconds, ranks, strict=True) if rank == r)
            for r in range(world_size)
        )
        for ranks in product(range(world_size), repeat=len(seconds))
    )
    assert best <= found <= best * (4 / 3 - 1 / (3 * world_size)) + 1e-9
