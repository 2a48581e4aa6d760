"""Learning rates by the names of parameters, under every engine.

The oracle of a factor is a step of the same engine without factors: from the same weights it has
the same gradients, and how far AdamW and its weight decay move a weight is in proportion to the
learning rate.
"""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from bigtrk.errors import InputError
from bigtrk.parallel.engines.optimizers import parameter_groups, set_rates
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from tests.distributed.ranks import run_ranks
from tests.distributed.trial import State, Trial, small

# The first that matches counts; the bias of the decoder has fewer values than there are ranks.
FACTORS = {"node_encoder.*": 0.0, "decoder.*": 0.5, "*bias": 0.5, "layers.1.*": 0.25}
ENGINES = ("DDP", "FSDP2", "zero0", "zero1", "zero2", "zero3")
OPTIMIZER = OptimizerSettings(weight_decay=0.1)


class Result(NamedTuple):
    """Weights before and after a step whose factors are all 1, and after one with FACTORS."""

    begun: State
    alike: State
    by_name: State


def stepped(ranks: Ranks) -> dict[str, Result]:
    found = {}
    for name in ENGINES:
        plain, trial = (
            Trial(ranks, small(name), OPTIMIZER, factors=factors) for factors in ({}, FACTORS)
        )
        begun = plain.weights()
        plain.step()
        trial.step()
        found[name] = Result(begun, plain.weights(), trial.weights())
    return found


@pytest.fixture(scope="module")
def done() -> dict[str, Result]:
    found: dict[str, Result] = run_ranks(3, stepped)[0]
    return found


def factor_of(name: str) -> float:
    """Reads FACTORS without patterns."""
    if name.startswith("node_encoder."):
        return 0.0
    if name.startswith("decoder.") or name.endswith("bias"):
        return 0.5
    return 0.25 if name.startswith("layers.1.") else 1.0


@pytest.mark.parametrize("engine", ENGINES)
def test_each_parameter_learns_at_its_own_rate(done: dict[str, Result], engine: str) -> None:
    result = done[engine]
    factors = {factor_of(name) for name in result.by_name}
    assert factors == {0.0, 0.25, 0.5, 1.0}
    for name, weight in result.by_name.items():
        begun, moved = result.begun[name], result.alike[name] - result.begun[name]
        for factor in factors:
            is_own = torch.allclose(weight, begun + factor * moved, rtol=1e-5, atol=1e-6)
            assert is_own == (factor == factor_of(name)), (name, factor)


def model() -> nn.Module:
    return nn.ModuleDict({"head": nn.Linear(2, 3), "tail": nn.Linear(3, 1)})


def rates(factors: dict[str, float]) -> dict[str, float]:
    made = model()
    optimizer = torch.optim.AdamW(parameter_groups(made, factors))
    set_rates(optimizer, 2.0)
    known = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    return {name: known[parameter] for name, parameter in made.named_parameters()}


def test_the_first_pattern_that_matches_counts() -> None:
    assert rates({}) == dict.fromkeys(("head.weight", "head.bias", "tail.weight", "tail.bias"), 2.0)
    assert rates({"*.bias": 0.5, "head.*": 0.25}) == {
        "head.weight": 0.5,
        "head.bias": 1.0,
        "tail.weight": 2.0,
        "tail.bias": 1.0,
    }


@pytest.mark.parametrize(
    ("factors", "complaint"),
    [
        ({"heads.*": 0.1}, "'heads.*' matches no parameter; the model's parts are head.*, tail.*"),
        ({"HEAD.*": 0.1}, "'HEAD.*' matches no parameter; "),
        ({"head": 0.1}, "'head' matches no parameter; "),
        ({"*": 0.1, "head.*": 1.0}, "earlier patterns match all of 'head.*'; remove it, or put"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(
    factors: dict[str, float], complaint: str
) -> None:
    with pytest.raises(InputError) as raised:
        parameter_groups(model(), factors)
    assert str(raised.value).startswith("training.lr_factors: ")
    assert complaint in str(raised.value)
