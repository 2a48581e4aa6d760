"""Tests the curve of a metric, whose memory does not grow with the run."""

import math

import numpy as np

from bigtrk.records.live.curve import MOST, Curve
from bigtrk.records.live.history import History
from tests.reports.run_folders import epoch_record, step_record


def filled(values: list[tuple[int, float]]) -> Curve:
    curve = Curve()
    for place, value in values:
        curve.add(place, value)
    return curve


def test_a_short_curve_is_what_was_added() -> None:
    values = [(3, 0.5), (4, 0.25), (9, 2.0)]
    assert filled(values).points() == values
    assert filled([*values, (10, math.nan), (11, math.inf)]).points() == values


def test_a_long_curve_has_means_over_equal_stretches() -> None:
    n = 10 * MOST
    values = np.random.default_rng(1).random(n)
    points = np.array(filled(list(enumerate(values.tolist()))).points())
    assert MOST / 2 <= len(points) <= MOST
    stride = 16  # the power of two that makes fewer than MOST stretches of n steps
    means = values.reshape(-1, stride).mean(axis=1)
    assert np.allclose(points[:, 1], means, rtol=1e-12)
    assert np.allclose(points[:, 0], np.arange(n).reshape(-1, stride).mean(axis=1))


def test_what_is_trained_again_replaces_what_came_after_it() -> None:
    curve = filled([(0, 1.0), (1, 2.0), (2, 3.0), (1, 5.0)])
    assert curve.points() == [(0, 1.0), (1, 5.0)]


def test_a_history_has_the_newest_values_and_the_curves_asked_for() -> None:
    history = History({"step/loss", "epoch/train_loss"}, first=2)
    for step in range(3):
        history.add(step_record(step, seconds=0.5, edges=100 * (step + 1)))
    history.add(epoch_record(0, train_loss=0.25))
    assert (history.step, history.epoch, history.count, history.trained) == (2, 0, 4, 0.5)
    assert history.newest["step/loss"] == 0.7 / 3
    assert history.newest["epoch/shares/compute"] == 0.85
    assert history.edges_per_second == 600 / 1.5
    assert {name: curve.points() for name, curve in history.curves.items()} == {
        "step/loss": [(0, 0.7), (1, 0.35), (2, 0.7 / 3)],
        "epoch/train_loss": [(0, 0.25)],
    }
