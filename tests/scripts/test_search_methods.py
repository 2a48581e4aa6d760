"""The accounts of scripts/physics/search_methods.py: equal time, and the best of all epochs."""

from pathlib import Path

import pytest

from scripts.docs.tables.search_tables import methods
from scripts.physics import search_methods
from scripts.physics.search_methods import QUICK, TITLES, WAYS, Found, entry, numbers, summary


def test_trials_are_added_until_they_have_trained_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = iter((4.0, 8.0, 12.0))
    monkeypatch.setattr(search_methods, "seconds", lambda _: next(trained))
    assert list(numbers("random", QUICK, Path("out"), 10.0)) == [1, 2, 3]
    assert list(numbers("pbt", QUICK, Path("out"), 10.0)) == [QUICK.members]


def test_the_summary_has_all_methods() -> None:
    found = [Found(0.9, 10.0, 3), Found(0.8, 20.0, 4)]
    rows = {way: entry(found) for way in WAYS}
    assert list(summary(rows)) == ["random", "tpe_asha", "pbt"]
    for row in summary(rows).values():
        assert row == {
            "mean": pytest.approx(0.85),
            "deviation": pytest.approx(0.0707, abs=1e-4),
            "seconds": 15.0,
        }
    table = methods({"methods": rows})
    assert [row[0] for row in table.rows] == list(TITLES.values())
    assert table.rows[0][1:] == ["0.85000 ± 0.07071", "3.5", "15 s"]
