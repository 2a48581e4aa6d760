from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.event import Event
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event


def assert_equal(first: Event, second: Event) -> None:
    assert first.name == second.name
    for table in ("hits", "cells", "particles", "truth"):
        left, right = getattr(first, table), getattr(second, table)
        assert (left is None) == (right is None)
        if left is not None:
            assert left.keys() == right.keys()
            for name in left:
                np.testing.assert_array_equal(left[name], right[name], strict=True)


@pytest.mark.parametrize("compress", [True, False])
def test_a_simulated_event_comes_back_unchanged(tmp_path: Path, compress: bool) -> None:
    event = simulate_event(200, seed=5, event_id=12)
    files = write_event(event, tmp_path, compress)
    assert {file.suffix for file in files} == {".gz" if compress else ".csv"}
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert_equal(read_event(tmp_path), event)


@pytest.mark.parametrize("folder", ["trackml_subevent", "trackml_event1000"])
def test_real_events_come_back_unchanged(testdata: Path, tmp_path: Path, folder: str) -> None:
    event = read_event(testdata / "data" / folder)
    write_event(event, tmp_path)
    back = read_event(tmp_path)
    for name in ("hit_id", "particle_id"):
        assert event.truth is not None
        assert back.truth is not None
        np.testing.assert_array_equal(back.truth[name], event.truth[name], strict=True)
    for name in ("x", "y", "z"):
        np.testing.assert_allclose(
            back.hits[name].astype(float), event.hits[name].astype(float), rtol=6e-8
        )
    # The file holds six digits, which float32 gives back, so nothing at all changes.
    assert_equal(back, event)
