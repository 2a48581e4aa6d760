"""The learning rate of each step, against torch's own schedulers where there is one."""

import math
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from bigtrk.config import parse
from bigtrk.errors import InputError
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.training.schedule import FACTOR, Plateau, Schedule

NEW = Plateau()


def schedule(events_per_step: int = 1, total_steps: int = 10, **settings: Any) -> Schedule:
    return Schedule(OptimizerSettings(lr=0.1, **settings), events_per_step, total_steps)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def test_warm_up_reaches_the_peak_and_stays() -> None:
    made = schedule(warmup_steps=4)
    rates = [made.rate(step, NEW) for step in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_the_cosine_starts_after_the_warm_up_and_ends_with_the_run() -> None:
    made = schedule(schedule="cosine", warmup_steps=2, total_steps=12)
    optimizer = sgd()
    oracle = CosineAnnealingLR(optimizer, T_max=10)
    assert [made.rate(step, NEW) for step in range(2)] == pytest.approx([0.05, 0.1])
    for step in range(2, 12):
        assert made.rate(step, NEW) == pytest.approx(optimizer.param_groups[0]["lr"]), step
        optimizer.step()
        oracle.step()


@pytest.mark.parametrize("patience", [0, 2])
def test_the_plateau_halves_when_torchs_does(patience: int) -> None:
    losses = [1.0, 0.9, 0.9, 0.89999, 0.95, math.nan, 0.9, 0.9, 0.5, 0.6, 0.6, 0.6, 0.6]
    made, state, optimizer = schedule(schedule="plateau"), NEW, sgd()
    oracle = ReduceLROnPlateau(optimizer, factor=FACTOR, patience=patience)
    for loss in losses:
        state = state.after(loss, patience)
        oracle.step(loss)
        assert made.rate(5, state) == pytest.approx(optimizer.param_groups[0]["lr"]), loss
    assert state.reductions > 1
    assert schedule().rate(5, state) == 0.1, "other schedules do not watch the loss"


@pytest.mark.parametrize(("scaling", "peak"), [("none", 0.1), ("linear", 0.9), ("sqrt", 0.3)])
def test_the_learning_rate_scales_with_the_events_of_a_step(scaling: str, peak: float) -> None:
    assert schedule(events_per_step=9, lr_scaling=scaling).rate(0, NEW) == pytest.approx(peak)
    assert schedule(events_per_step=1, lr_scaling=scaling).rate(0, NEW) == pytest.approx(0.1)


def test_a_cosine_without_steps_after_the_warm_up_is_refused() -> None:
    with pytest.raises(InputError, match=r"warmup_steps=10: leaves no steps.*run has 10\); lower"):
        schedule(schedule="cosine", warmup_steps=10)


def test_an_unknown_schedule_names_those_there_are() -> None:
    with pytest.raises(InputError, match="'constant', 'cosine' or 'plateau'"):
        parse(OptimizerSettings, {"schedule": "step"}, "bigtrk.yaml")
