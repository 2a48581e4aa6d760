"""Estimates from draws whose distribution is known."""

import math

import numpy as np
import pytest

from bigtrk.audit.estimates import (
    Floats,
    Products,
    cosine,
    cosine_of_mean,
    products,
    signal,
    statistics,
    variance,
)
from bigtrk.records.audit import DrawStatistics, Measured

WIDTH, DRAWS = 60, 24
REPEATS = 150


def gaussian(seed: int) -> Products:
    """Draws of one event's gradient, with a bias and noise of deviation 0.5 in each value."""
    exact, bias = _vectors()
    noise = 0.5 * np.random.default_rng(seed).normal(size=(DRAWS, WIDTH))
    same = np.tile(exact, (DRAWS, 1))
    return products(same + bias + noise, same, exact, np.zeros(DRAWS, np.int64))


def _vectors() -> tuple[Floats, Floats]:
    """Returns the exact gradient, of norm 1, and a bias of norm 0.3 with a part along it."""
    exact, across = np.eye(WIDTH)[:2]
    return exact, 0.3 * (-0.6 * exact + 0.8 * across)


EXPECTED = {
    "bias_squared": 0.09,
    "variance": 0.25 * WIDTH,
    "noise": 0.25 * WIDTH,
    "signal": (0.82**2 + 0.24**2) / (0.25 * WIDTH),  # |E g|^2 over the trace of the covariance
    "progress": 0.82**2 / (0.82**2 + 0.24**2 + 0.25 * WIDTH),
}


@pytest.fixture(scope="module")
def repeats() -> list[DrawStatistics]:
    return [statistics(gaussian(seed)) for seed in range(REPEATS)]


@pytest.mark.parametrize(("statistic", "expected"), EXPECTED.items())
def test_an_estimate_has_the_value_and_the_error_of_its_distribution(
    repeats: list[DrawStatistics], statistic: str, expected: float
) -> None:
    """The mean over repeats is what is known, and its error is told as large as it is."""
    found = [getattr(record, statistic) for record in repeats]
    values = np.array([one.value for one in found])
    errors = np.array([one.error for one in found])
    scatter = values.std()
    # A ratio, and a square of a mean, of a few draws are off by about 1 / draws.
    assert abs(values.mean() - expected) < 4 * scatter / math.sqrt(REPEATS) + abs(expected) / DRAWS
    # The jackknife of products of two draws is at most a root of 2 too large.
    assert 0.8 < math.sqrt((errors**2).mean()) / scatter < 1.2 * math.sqrt(2)


def test_the_noise_scale_is_that_of_two_batch_sizes() -> None:
    """McCandlish et al., appendix A.1: the two unbiased estimators, from batches of 1 and of n."""
    n = 20
    generator = np.random.default_rng(5)
    draws = 1 + generator.normal(size=(n, WIDTH))
    small, big = (draws**2).sum(1).mean(), (draws.mean(0) ** 2).sum()
    squared = (n * big - small) / (n - 1)
    trace = (small - big) / (1 - 1 / n)
    found = products(draws, draws, draws.mean(0), np.arange(n))
    assert signal(found) == pytest.approx(squared / trace)
    assert statistics(found).noise_scale == pytest.approx(trace / squared)


def test_no_step_against_the_gradient_is_progress() -> None:
    exact = np.eye(WIDTH)[0]
    draws = np.tile(-exact, (4, 1))
    found = products(draws, np.tile(exact, (4, 1)), exact, np.arange(4))
    assert cosine(found) == pytest.approx(-1)
    assert statistics(found).progress == Measured(value=0.0, error=0.0)


def test_draws_of_one_event_are_not_independent() -> None:
    """Each event's gradient is off the common one by noise of its own, which counts as noise."""
    generator = np.random.default_rng(1)
    n_events, each = 200, 4
    common = np.ones(WIDTH)
    of_event = common + 2 * generator.normal(size=(n_events, WIDTH))
    event = np.repeat(np.arange(n_events), each)
    drawn = of_event[event] + 0.1 * generator.normal(size=(len(event), WIDTH))
    found = products(drawn, of_event[event], of_event.mean(0), event)
    expected = WIDTH / ((4 + 0.01) * WIDTH)
    assert signal(found) == pytest.approx(expected, rel=0.15)
    assert variance(found) * found.target == pytest.approx(0.01 * WIDTH, rel=0.1)


def test_cosines() -> None:
    exact = np.array([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]])
    drawn = np.array([[6.0, 8.0], [4.0, -3.0], [0.0, 0.0]])
    found = products(drawn, exact, exact[0], np.arange(3))
    assert cosine(found) == pytest.approx(1 / 3)
    assert cosine_of_mean(found) == pytest.approx((10 * 3 + 5 * 4) / (5 * math.hypot(10, 5)))


def test_the_same_gradients_have_no_bias_and_only_the_noise_of_events() -> None:
    exact = np.random.default_rng(2).normal(size=(8, WIDTH)) + 1
    found = statistics(products(exact, exact, exact.mean(0), np.arange(8)))
    assert found.bias_squared == Measured(value=0, error=0)
    assert found.variance == Measured(value=0, error=0)
    assert found.cosine is not None
    assert found.cosine.value == pytest.approx(1)
    assert found.noise is not None
    assert found.noise.value > 0


def test_what_cannot_be_told_is_none() -> None:
    one = np.ones((1, WIDTH))
    found = statistics(products(one, one, one[0], np.zeros(1, np.int64)))
    assert (found.bias_squared, found.noise, found.signal, found.noise_scale) == (None,) * 4
    assert found.cosine is not None
    assert found.cosine.value == pytest.approx(1)
    assert found.cosine.error is None
    two = np.concatenate([one, 2 * one])
    of_two = statistics(products(two, two, two.mean(0), np.arange(2)))
    assert of_two.noise is not None
    assert of_two.noise.error is None
    against = np.concatenate([one, -one])
    assert statistics(products(against, against, one[0], np.arange(2))).noise_scale is None
