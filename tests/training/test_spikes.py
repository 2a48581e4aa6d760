"""Tests which losses are spikes."""

import math

import pytest

from bigtrk.errors import InputError
from bigtrk.training.guards import FEWEST, MOST_IN_A_ROW, WINDOW, LossHistory, check_spikes


def history(losses: list[float]) -> LossHistory:
    found = LossHistory()
    for loss in losses:
        found = found.after(loss, spike=False)
    return found


def test_the_limit_is_the_median_and_so_many_deviations() -> None:
    losses = [0.1 * i for i in range(1, 12)]  # median 0.6, deviations 0.5 to 0: median 0.3
    assert history(losses).limit(10) == pytest.approx(0.6 + 10 * 0.3)
    assert history([*losses, 1e6]).limit(10) == pytest.approx(0.65 + 10 * 0.3), "one outlier"


def test_losses_that_hardly_vary_leave_room() -> None:
    assert history([2.0] * 20).limit(10) == pytest.approx(2.0 * 1.2)


def test_nothing_is_judged_by_few_losses_and_old_ones_are_forgotten() -> None:
    assert history([1.0] * (FEWEST - 1)).limit(1) == math.inf
    assert history([1.0] * FEWEST).limit(1) < 2
    assert history([9.0] * 100 + [1.0] * WINDOW).limit(1) < 2


def test_spikes_do_not_raise_the_limit_but_count() -> None:
    known = history([1.0] * 20)
    after = known.after(50.0, spike=True).after(math.nan, spike=True)
    assert after.limit(10) == known.limit(10)
    assert after.spikes_since == 2
    assert after.after(1.0, spike=False).spikes_since == 0


def test_too_many_in_a_row_stop_the_run() -> None:
    check_spikes(MOST_IN_A_ROW - 1)
    with pytest.raises(InputError, match=r"spiked in 10 steps in a row; lower optimizer\.lr"):
        check_spikes(MOST_IN_A_ROW)
