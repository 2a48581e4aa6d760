"""Learning rates by the names of parameters, under every engine, on 2 and 3 ranks.

The oracle of a factor is a step of the same engine without factors: from the same weights it has
the same gradients, and how far AdamW and its weight decay move a weight is in proportion to the
learning rate.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from bigtrk.errors import InputError
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.engines.optimizers import parameter_groups, set_rates
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.training.checkpoint.checkpointer import Checkpointer, RunDescription
from bigtrk.training.checkpoint.manifest import EpochTotals, Progress
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.guards import LossHistory
from bigtrk.training.model_files import build_model
from bigtrk.training.schedule import Plateau
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.routers import scoring_router
from tests.distributed.graphs import sources
from tests.distributed.ranks import run_ranks
from tests.distributed.runs import ENGINES

LR = 0.01
# The first that matches counts; the bias of the decoder has fewer values than there are ranks.
FACTORS = {"node_encoder.*": 0.0, "decoder.*": 0.5, "*bias": 0.5, "layers.1.*": 0.25}
QUICK = ("DDP", "FSDP2", "zero1", "zero2", "zero3")
OTHERS = tuple(name for name in ENGINES if name not in QUICK)
EVENTS = range(len(sources()))
Weights = dict[str, Tensor]


class Trial:
    """An engine and the steps it takes."""

    def __init__(self, ranks: Ranks, engine: str, factors: dict[str, float]) -> None:
        settings = Configuration.model_validate(
            {"model": {"hidden": 8, "layers": 2}, "engine": ENGINES[engine]}
        )
        events = sources()
        router = scoring_router(events, ranks.world_size)
        world = make_world(ranks, router.num_ranks)
        model, optimizer = build_model(settings), OptimizerSettings(weight_decay=0.1)
        self.engine, self._name = make_engine(
            settings.engine, model, optimizer, world.stopwatch, factors
        )
        maker = BatchMaker(settings, world)
        self._shares = Loader(maker.of(events), world).load(router.route(EVENTS))
        self._runner = StepRunner(self.engine, settings.training, world)

    def step(self) -> Weights:
        self._runner.run(EVENTS, self._shares, lr=LR)
        return self.weights()

    def weights(self) -> Weights:
        return {name: value.clone() for name, value in self.engine.weights().items()}

    def checkpoints(self, run: Path) -> Checkpointer:
        run.mkdir(parents=True, exist_ok=True)
        return Checkpointer(run, self.engine, RunDescription("", self._name, {}), lambda: None)


class Result(NamedTuple):
    """Weights before and after a step whose factors are all 1, and with FACTORS; with these after a
    second step, and after that step from a checkpoint before it.
    """

    begun: Weights
    alike: Weights
    by_name: Weights
    second: Weights
    resumed: Weights


def work(ranks: Ranks, folder: Path, engines: tuple[str, ...]) -> dict[str, Result]:
    found = {}
    for name in engines:
        plain = Trial(ranks, name, {})
        begun, alike = plain.weights(), plain.step()
        trial, other = Trial(ranks, name, FACTORS), Trial(ranks, name, FACTORS)
        by_name = trial.step()
        with trial.checkpoints(folder / name) as checkpoints:
            checkpoints.save(Progress(0, 1, 1, Plateau(), LossHistory(), EpochTotals()))
        with other.checkpoints(folder / name) as checkpoints:
            checkpoints.load()
        found[name] = Result(begun, alike, by_name, trial.step(), other.step())
    return found


Done = Callable[[int, str], Result]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Gives the result of an engine on so many ranks, with those of the engines beside it."""

    @cache
    def trained(world_size: int, engines: tuple[str, ...]) -> dict[str, Result]:
        folder = tmp_path_factory.mktemp("factors")
        found: dict[str, Result] = run_ranks(world_size, work, folder, engines)[0]
        return found

    return lambda n, engine: trained(n, QUICK if engine in QUICK else OTHERS)[engine]


def factor_of(name: str) -> float:
    """Reads FACTORS without patterns."""
    if name.startswith("node_encoder."):
        return 0.0
    if name.startswith("decoder.") or name.endswith("bias"):
        return 0.5
    return 0.25 if name.startswith("layers.1.") else 1.0


CASES = [
    *((n, engine) for n in (2, 3) for engine in QUICK),
    *(pytest.param(2, engine, marks=pytest.mark.slow) for engine in OTHERS),
]


@pytest.mark.parametrize(("world_size", "engine"), CASES)
def test_each_parameter_learns_at_its_own_rate(done: Done, world_size: int, engine: str) -> None:
    result = done(world_size, engine)
    factors = {factor_of(name) for name in result.by_name}
    assert factors == {0.0, 0.25, 0.5, 1.0}
    for name, weight in result.by_name.items():
        begun, moved = result.begun[name], result.alike[name] - result.begun[name]
        for factor in factors:
            is_own = torch.allclose(weight, begun + factor * moved, rtol=1e-5, atol=1e-6)
            assert is_own == (factor == factor_of(name)), (name, factor)


@pytest.mark.parametrize(("world_size", "engine"), CASES)
def test_rates_by_name_are_resumed_bit_for_bit(done: Done, world_size: int, engine: str) -> None:
    result = done(world_size, engine)
    for name, weight in result.second.items():
        assert torch.equal(weight, result.resumed[name]), name
        assert torch.equal(weight, result.by_name[name]) == (factor_of(name) == 0), name


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
        (
            {"heads.*": 0.1},
            "'heads.*' matches no parameter; those of the model's parts are head.*,",
        ),
        ({"HEAD.*": 0.1}, "'HEAD.*' matches no parameter; "),
        ({"head": 0.1}, "'head' matches no parameter; "),
        ({"*": 0.1, "head.*": 1.0}, "matches no parameter that no pattern before it matches; remo"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(
    factors: dict[str, float], complaint: str
) -> None:
    with pytest.raises(InputError) as raised:
        parameter_groups(model(), factors)
    assert str(raised.value).startswith("training.lr_factors: ")
    assert complaint in str(raised.value)
