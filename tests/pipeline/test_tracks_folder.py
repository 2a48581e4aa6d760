"""A folder of tracks holds those of one making."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.parallel.process_group import process_group
from bigtrk.pipeline.reconstruct import TracksMade, fill_tracks
from bigtrk.pipeline.stages import Passage
from bigtrk.tracks.files import open_tracks
from bigtrk.tracks.matching import Ids
from tests.distributed.ranks import ALONE

EVENTS = ("event000000001", "event000000002")


def fill(out: Path, names: Sequence[str], failing: str | None = None) -> TracksMade:
    """Makes one track of each event's two hits."""

    def make(name: str | None) -> tuple[Ids, Ids, Passage]:
        if name == failing:
            raise InputError(f"{name}: damaged")
        return np.arange(2), np.zeros(2, np.int64), Passage()

    with process_group(ALONE):
        return fill_tracks(out, dict.fromkeys(names, 1.0), make, "making tracks", ALONE)


def test_an_event_that_fails_keeps_no_earlier_tracks(tmp_path: Path) -> None:
    fill(tmp_path, EVENTS)
    assert [*open_tracks(tmp_path).events] == [1, 2]
    assert [*fill(tmp_path, EVENTS, failing=EVENTS[0]).failed] == [EVENTS[0]]
    assert [*open_tracks(tmp_path).events] == [2]
    assert [*open_tracks(tmp_path / "submission.csv").events] == [2]


def test_tracks_of_other_events_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    fill(tmp_path, EVENTS)
    with pytest.raises(InputError, match=r"holds tracks of other events, such as event000000002-t"):
        fill(tmp_path, EVENTS[:1])
    assert [*open_tracks(tmp_path).events] == [1, 2]
