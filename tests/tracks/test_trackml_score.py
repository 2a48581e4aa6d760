"""The TrackML score against the challenge's own software, and the checks of a submission."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.tracks.trackml_score import aligned_submission, trackml_score
from tests.tracks.subevent import read_subevent


def test_every_golden_score(testdata: Path) -> None:
    event = read_subevent(testdata)
    golden = json.loads((testdata / "golden/trackml_score/scores.json").read_text())["scores"]
    assert golden.keys() == event.submissions.keys()
    for name, expected in golden.items():
        score = trackml_score(event.submissions[name], event.particle_id, event.weight)
        assert score == pytest.approx(expected, rel=1e-12, abs=1e-15), name
    assert trackml_score(event.particle_id, event.particle_id, event.weight) == pytest.approx(1.0)
    in_no_track = np.full_like(event.particle_id, -1)
    assert trackml_score(in_no_track, event.particle_id, event.weight) == 0.0


def test_more_than_half_of_track_and_of_particle() -> None:
    weight = np.array([1.0, 2.0, 4.0, 8.0])
    particle = np.array([7, 7, 7, 8])
    assert trackml_score(np.array([0, 0, 1, -1]), particle, weight) == 3 / 15
    assert trackml_score(np.array([0, 1, 2, 0]), particle, weight) == 0.0
    assert trackml_score(np.array([0, 0, 0, 0]), particle, weight) == 7 / 15
    assert trackml_score(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 8]), weight) == 8 / 15


def test_unknown_weights_are_an_error() -> None:
    one = np.array([1])
    with pytest.raises(InputError, match="unknown"):
        trackml_score(one, one, np.array([np.nan]))
    with pytest.raises(InputError, match="sum to 0"):
        trackml_score(one, one, np.array([0.0]))


HITS = np.array([5, 3, 9])


def align(*rows: tuple[int, int]) -> NDArray[np.int64]:
    hits, tracks = np.array(rows).T
    return aligned_submission(HITS, hits, tracks, "mine.csv")


def test_a_submission_in_any_order() -> None:
    assert align((9, 1), (5, 2), (3, 1)).tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(9, 1), (5, 2), (3, 1), (5, 2)], "mine.csv: hit 5 occurs twice"),
        ([(9, 1), (5, 2)], r"mine.csv: hit 3 is missing \(1 in all\)"),
        ([(9, 1), (5, 2), (3, 1), (4, 1)], "mine.csv: hit 4 is not in the event"),
        ([(9, 1), (5, -1), (3, 1)], "mine.csv: row 2: track id -1"),
    ],
)
def test_bad_submissions_name_the_hit(rows: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        align(*rows)
