"""Tests what is said of trainings side by side: with one heap and several, and with pages of the
pool and of the system.
"""

from pathlib import Path
from typing import Any

import pytest

from scripts.memory import heap_growth, page_pool
from scripts.memory.heap_growth import ONE, SEVERAL
from scripts.memory.page_pool import POOL, SYSTEM
from scripts.memory.side_by_side import Case, Sides, alternate

OF_HEAPS: dict[str, Any] = {
    ONE: {"first": 100e6, "last": 105e6, "seconds": 0.9},
    SEVERAL: {"first": 100e6, "last": 120e6, "seconds": 1.0},
}
OF_PAGES: dict[str, Any] = {
    POOL: {"first": 100e6, "last": 105e6, "seconds": 0.5},
    SYSTEM: {"first": 100e6, "last": 100e6, "seconds": 1.0},
}
CASE = {"particles": 300, "hidden": 16, "recompute": "layer", "sectors": 2, "more": ("model.x=1",)}


def test_the_last_line_of_heaps_has_the_worst_of_each() -> None:
    worse = {ONE: {"first": 100e6, "last": 102e6, "seconds": 1.1}, SEVERAL: OF_HEAPS[ONE]}
    assert heap_growth.summary([OF_HEAPS, worse]) == pytest.approx(
        {
            "growth_one": 0.05,
            "growth_several": 0.2,
            "peak_ratio": 102 / 105,
            "seconds_ratio": 1.1 / 0.9,
        }
    )


def test_the_last_line_of_pages_has_the_spread_of_seconds() -> None:
    slower = {POOL: OF_PAGES[SYSTEM], SYSTEM: OF_PAGES[SYSTEM]}
    assert page_pool.summary([OF_PAGES, slower]) == pytest.approx(
        {
            "least_seconds_ratio": 0.5,
            "median_seconds_ratio": 0.75,
            "largest_seconds_ratio": 1.0,
            "largest_peak_ratio": 1.05,
        }
    )


def test_rows_are_said_in_one_line() -> None:
    assert heap_growth.told({**CASE, **OF_HEAPS}) == (
        "300 particles, hidden 16, layer, 2 sectors: 100 to 105 MB with one heap, "
        "100 to 120 MB with several; 0.90 times as long"
    )
    assert page_pool.told({**CASE, **OF_PAGES}) == (
        "300 particles, hidden 16, layer, 2 sectors, model.x=1: 0.50 s and 105 MB with the pool, "
        "1.00 s and 100 MB without"
    )


@pytest.mark.slow  # six trainings each
@pytest.mark.parametrize(
    ("sides", "sectors"), [(heap_growth.SIDES, 2), (page_pool.SIDES, 1)], ids=["heaps", "pages"]
)
def test_a_case_is_measured(tmp_path: Path, sides: Sides, sectors: int) -> None:
    case = Case(300, hidden=16, layers=2, recompute="layer", sectors=sectors)
    found = alternate(case, tmp_path, sides)
    assert found.keys() == sides.keys()
    for side in found.values():
        assert 0 < side["first"] <= side["last"]
        assert side["seconds"] > 0
