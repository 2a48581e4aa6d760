"""Hits whose track differs are counted as a loop over sets of hits counts them."""

from collections import defaultdict

import numpy as np
import pytest

from bigtrk.tracks.builders.builder import NO_TRACK
from bigtrk.tracks.matching import Ids
from scripts.physics.stitched_tracks import changed_hits


def by_sets(one: Ids, other: Ids) -> int:
    """Counts the hits that are with other hits in `other` than in `one`."""

    def companions(tracks: Ids) -> list[frozenset[int]]:
        members = defaultdict(set)
        for hit, track in enumerate(tracks):
            members[("alone", hit) if track == NO_TRACK else ("track", track)].add(hit)
        by_hit = {hit: frozenset(hits) for hits in members.values() for hit in hits}
        return [by_hit[hit] for hit in range(len(tracks))]

    return sum(a != b for a, b in zip(companions(one), companions(other), strict=True))


def test_numbers_of_tracks_do_not_matter() -> None:
    one = np.array([0, 0, 0, 1, 1, 1, -1, -1])
    assert changed_hits(one, np.array([7, 7, 7, 3, 3, 3, -1, -1])) == 0
    assert changed_hits(one, np.array([0, 0, 0, 1, 1, 1, 1, -1])) == 4
    assert changed_hits(one, np.array([0, 0, -1, 1, 1, 1, -1, -1])) == 3
    assert changed_hits(one[:0], one[:0]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_tracks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.integers(-1, 6, 40)
    numbers = rng.permutation(6)
    other = np.where(one == NO_TRACK, NO_TRACK, numbers[one])
    moved = rng.integers(40, size=seed % 4)
    other[moved] = rng.integers(-1, 8, len(moved))
    assert changed_hits(one, other) == by_sets(one, other)
