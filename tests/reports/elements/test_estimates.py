"""Means, ratios and binomial intervals against figures worked out by hand and by scipy."""

import math
import random
from statistics import stdev

import pytest
from scipy.stats import binomtest, norm

from bigtrk.reports.elements.estimates import Estimate, estimate, ratio, wilson


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


def test_scaling_a_mean_scales_its_error() -> None:
    assert Estimate(2.0, 0.5, 3).times(100) == Estimate(200.0, 50.0, 3)
