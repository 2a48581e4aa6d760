"""Tests what is said of a training's memory with one heap and with several."""

from pathlib import Path
from typing import Any

import pytest

from scripts.bench.heap_growth import CASES, ONE, SEVERAL, Case, measure_case, summary, told

SIDES: dict[str, Any] = {
    ONE: {"first": 100e6, "last": 105e6, "seconds": 0.9},
    SEVERAL: {"first": 100e6, "last": 120e6, "seconds": 1.0},
}
ROW = {"particles": 300, "hidden": 16, "recompute": "layer", "sectors": 2, **SIDES}


def test_the_last_line_has_the_worst_of_each() -> None:
    worse = {**ROW, ONE: {"first": 100e6, "last": 102e6, "seconds": 1.1}, SEVERAL: SIDES[ONE]}
    assert summary([ROW, worse]) == pytest.approx(
        {
            "growth_one": 0.05,
            "growth_several": 0.2,
            "peak_ratio": 102 / 105,
            "seconds_ratio": 1.1 / 0.9,
        }
    )


def test_a_row_is_said_in_one_line() -> None:
    assert told(ROW) == (
        "300 particles, hidden 16, layer, 2 sectors: 100 to 105 MB with one heap, "
        "100 to 120 MB with several; 0.90 times as long"
    )


@pytest.mark.slow  # six trainings
def test_a_case_is_measured(tmp_path: Path) -> None:
    row = measure_case(Case(300, hidden=16, layers=2, recompute="layer", sectors=2), tmp_path)
    for side in (ONE, SEVERAL):
        assert 0 < row[side]["first"] <= row[side]["last"]
        assert row[side]["seconds"] > 0
    assert len({(case.particles, case.sectors) for case in CASES}) == len(CASES)
