"""Numbers as text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.reports.elements import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (10000, "10.0 K"),
        (99960, "100 K"),
        (999600, "1.00 M"),
        (6_900_000, "6.90 M"),
        (2.5e9, "2.50 G"),
        (None, "-"),
    ],
)
def test_count(value: float | None, text: str) -> None:
    assert figures.count(value) == text


def test_no_zero_is_negative() -> None:
    shown = (figures.count, figures.memory, figures.seconds, figures.share, figures.loss)
    assert not [show.__name__ for show in (*shown, figures.decimal) if "-" in show(-1e-12)]


@given(st.floats(0, 1e15))
def test_count_is_right_to_three_digits(value: float) -> None:
    number, _, unit = figures.count(value).partition(" ")
    shown = float(number.replace(",", "")) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit]
    assert shown == pytest.approx(value, rel=0.00501, abs=0.5)


def test_figures_of_the_paper_are_reproduced() -> None:
    assert figures.percent(0.87831) == "87.831"
    assert figures.loss(0.00406) == "0.00406"
    assert figures.seconds(34.36) == "34.36"


def test_small_and_unknown_values() -> None:
    assert figures.seconds(0.0123) == "0.0123"
    assert figures.memory(512 * 2**20) == "512 MiB"
    assert figures.memory(1.5 * 2**30) == "1.5 GiB"
    assert figures.rate(0.25) == "0.25"
    assert figures.loss(math.nan) == "nan"
    unknown = (figures.seconds, figures.percent, figures.loss, figures.memory, figures.rate)
    assert [show(None) for show in unknown] == ["-"] * 5


def test_settings_in_one_line() -> None:
    section = {"hidden": 64, "cut": None, "features": ["r", "phi"], "inner": {"a": 1}}
    assert figures.settings(section) == "hidden 64, cut none, features r phi, inner (a 1)"
    assert figures.settings({}) == "-"
