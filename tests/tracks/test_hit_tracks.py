"""The tracks that a file lists, laid over the hits of an event."""

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.files import HitTracks

HITS = np.array([5, 3, 9, 4])


def listed(*rows: tuple[int, int]) -> HitTracks:
    """Hit and track of each row of a file whose first row is called 11."""
    hit_id, track_id = np.array(rows, np.int64).reshape(-1, 2).T
    return HitTracks(hit_id, track_id, "mine.csv", np.arange(len(rows)) + 11)


def test_hits_in_any_order_and_those_not_listed_in_no_track() -> None:
    assert listed((9, 1), (5, 2), (3, -1)).checked().of_hits(HITS).tolist() == [2, -1, 1, -1]
    assert listed().checked().of_hits(HITS).tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(9, 1), (5, 2), (3, 1), (5, 2), (9, 1)], "mine.csv, row 14: hit 5 is listed again; keep"),
        ([(9, 1), (5, -2)], "mine.csv, row 12: track id -2 is below -1; number tracks from 0"),
        ([(9, 1), (7, 1), (-5, 1)], r"row 12: hit 7 is not in the event; .*\(2 such rows in all\)"),
        ([(9, 1), (2**63 - 1, 1)], "row 12: hit 9223372036854775807 is not in the event"),
    ],
)
def test_bad_rows_are_named(rows: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        listed(*rows).checked().of_hits(HITS)
