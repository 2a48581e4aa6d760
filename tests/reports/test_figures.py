"""Numbers as text; means, ratios and binomial intervals against scipy and figures by hand."""

import math
import random
from statistics import stdev

import pytest
from scipy.stats import binomtest, norm

from bigtrk.reports import figures
from bigtrk.reports.figures import Estimate, estimate, ratio, wilson


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 events"),
        (1, "1 event"),
        (2, "2 events"),
        (12_300, "12.3 K events"),
        (None, "- events"),
    ],
)
def test_one_thing_is_counted_in_the_singular(value: float | None, text: str) -> None:
    assert figures.count_of(value, "event") == text


def test_small_and_unknown_values() -> None:
    assert figures.percent(0.87831) == "87.831"
    assert figures.seconds(34.36) == "34.36"
    assert figures.seconds(0.0123) == "0.0123"
    assert figures.memory(512 * 2**20) == "512 MiB"
    assert figures.memory(1.5 * 2**30) == "1.5 GiB"
    assert figures.rate(0.25) == "0.25"
    assert figures.loss(math.nan) == "nan"
    unknown = (figures.seconds, figures.percent, figures.loss, figures.memory, figures.rate)
    assert [show(None) for show in unknown] == ["-"] * 5
    shown = (figures.count, figures.memory, figures.seconds, figures.percent, figures.loss)
    assert not [show for show in (*shown, figures.decimal) if "-" in show(-1e-12)], "no zero is"


def test_settings_in_one_line() -> None:
    section = {"hidden": 64, "cut": None, "features": ["r", "phi"], "inner": {"a": 1}}
    assert figures.settings(section) == "hidden 64, cut none, features r phi, inner (a 1)"
    assert figures.settings({}) == "-"


@pytest.mark.parametrize(("k", "n"), [(0, 7), (3, 10), (50, 50), (9960, 10000), (1, 1)])
def test_wilson_is_that_of_scipy(k: int, n: int) -> None:
    level = norm.cdf(1) - norm.cdf(-1)
    expected = binomtest(k, n).proportion_ci(confidence_level=level, method="wilson")
    assert wilson(k / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_standard_error_of_the_mean() -> None:
    found = estimate([3.0, None, 5.0, 10.0])
    assert found is not None
    assert (found.mean, found.n) == (6.0, 3)
    assert found.error == pytest.approx(stdev([3, 5, 10]) / math.sqrt(3))
    assert estimate([4.0]) == Estimate(4.0, None, 1)
    assert estimate([None]) is None


def test_error_of_a_ratio_is_the_spread_of_drawn_ones() -> None:
    generator = random.Random(0)
    above, below = Estimate(12.0, 0.3, 3), Estimate(4.0, 0.05, 5)
    drawn = [generator.gauss(12.0, 0.3) / generator.gauss(4.0, 0.05) for _ in range(20000)]
    found = ratio(above, below)
    assert found.mean == 3.0
    assert found.error == pytest.approx(stdev(drawn), rel=0.03)
    assert found.n == 3
    assert ratio(above, Estimate(4.0, None, 1)).error is None
