"""A fault on one rank stops all of them, at once and with one message."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.parallel.collectives import check_agreement, on_first_rank, together
from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.world import make_world
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.evaluation import scoring
from bigtrk.training.model_files import build_model
from bigtrk.training.settings import Configuration
from bigtrk.training.steps import RoutedStep, check_routes, scoring_router
from bigtrk.training.trainer import StepRunner
from tests.distributed.graphs import MemorySource, source
from tests.distributed.ranks import Works, message, run_all, run_ranks


def fail_on(ranks: Ranks, failing: list[int]) -> str | None:
    def work() -> None:
        if ranks.rank in failing:
            raise InputError("graphs: no such folder")

    return message(lambda: together(work))


FAILING = {
    "none": ([], None),
    "one": ([1], "rank 1: graphs: no such folder"),
    "all": ([0, 1, 2], "graphs: no such folder"),
}


@pytest.mark.parametrize("who", FAILING)
def test_all_ranks_raise_what_one_met(of_three: dict[str, list[Any]], who: str) -> None:
    assert of_three[who] == [FAILING[who][1]] * 3


def disagree(ranks: Ranks) -> str | None:
    data = "another" if ranks.rank == 1 else "5 events of digest abc"
    return message(lambda: check_agreement({"software": "torch 2.13.0", "data": data}))


def test_ranks_that_differ_are_named(of_three: dict[str, list[Any]]) -> None:
    for found in of_three["differ"]:
        assert "rank 1 has another data than rank 0: another instead of" in str(found)
        assert "software" not in found


def first_fails(_: Ranks) -> str | None:
    def work() -> int:
        raise InputError("runs/1: already holds a run")

    return message(lambda: on_first_rank(work))


def test_what_rank_0_alone_does_fails_everywhere(of_three: dict[str, list[Any]]) -> None:
    assert of_three["first fails"] == ["rank 0: runs/1: already holds a run"] * 3


def routed_differently(ranks: Ranks) -> str | None:
    steps = [RoutedStep([0], [[None] * 3] * (1 + ranks.rank))]
    return message(lambda: check_routes(steps))


def test_ranks_with_other_routes_stop_before_the_epoch(of_three: dict[str, list[Any]]) -> None:
    for said in of_three["routes"]:
        assert "rank 1 has another routing than rank 0: 2 micro-steps" in said


@pytest.fixture(scope="module")
def of_three() -> dict[str, list[Any]]:
    works: Works = {who: (fail_on, (ranks,)) for who, (ranks, _) in FAILING.items()}
    routes: Works = {"routes": (routed_differently, ()), "differ": (disagree, ())}
    return run_all(3, {**works, **routes, "first fails": (first_fails, ())})


class Unreadable(MemorySource):
    """An event whose last part cannot be read."""

    def read_several(self, numbers: Sequence[int], parts: int) -> Any:
        if parts - 1 in numbers:
            raise InputError("event000000007.safetensors: does not match its checksum")
        return super().read_several(numbers, parts)


def read_steps(ranks: Ranks) -> tuple[int, str | None]:
    good, bad = source(1, 2), source(7, 2)
    sources: list[Any] = [good, Unreadable(bad.name, bad.parts, bad.graph, bad.owner)]
    world = make_world(ranks, [2])
    loader = Loader(BatchMaker(Configuration(), world).of(sources), world)
    router = scoring_router(sources, ranks.world_size)
    done = 0

    def read() -> None:
        nonlocal done
        for _ in loader.steps([router.route([event]) for event in (0, 1, 0)]):
            done += 1

    return done, message(read)


def test_a_rank_that_fails_while_reading_stops_all() -> None:
    for done, found in run_ranks(2, read_steps):
        assert found == "rank 1: event000000007.safetensors: does not match its checksum"
        assert done <= 1


def score(ranks: Ranks, infinite: str = "") -> str | None:
    """Returns the message where rank 1 alone cannot read the event that it scores, or has no
    finite "scores" or "loss" of it.
    """
    good, other = source(1, 1), source(7, 1)
    bad = other if infinite else Unreadable(other.name, other.parts, other.graph, other.owner)
    events: list[Any] = [good, bad]
    settings = Configuration.model_validate({"model": {"hidden": 8, "layers": 2}})
    model = build_model(settings)
    if infinite == "scores" and ranks.rank == 1:
        next(model.parameters()).data.fill_(torch.inf)
    if infinite == "loss" and ranks.rank == 1:
        vars(scoring)["make_loss"] = lambda _: lambda logits, *_: logits.sum() * torch.inf
    router = scoring_router(events, ranks.world_size)
    maker = BatchMaker(settings, make_world(ranks, router.num_ranks))
    return message(lambda: scoring.validate(model, maker, events, router, settings.training))


def test_a_rank_that_cannot_read_what_it_scores_stops_all() -> None:
    for said in run_ranks(2, score):
        assert said == "rank 1: event000000007.safetensors: does not match its checksum"


def not_finite(ranks: Ranks, what: str) -> tuple[str | None, bool]:
    try:
        return score(ranks, what), False
    except RuntimeError:
        return None, True


@pytest.mark.parametrize("what", ["scores", "loss"])
def test_a_rank_says_that_what_it_validates_is_not_finite(what: str) -> None:
    (said, gone), (named, _) = run_ranks(2, not_finite, what, fresh=True)
    assert (said, gone) == (None, True)
    assert str(named).startswith("rank 1: the scores or the loss of event000000007 are not finite")


def diverge(ranks: Ranks, engine_settings: dict[str, str]) -> tuple[str | None, bool]:
    """A step in which rank 1's part of the loss is not finite: the error; the weights stayed."""
    settings = Configuration.model_validate(
        {"model": {"hidden": 8, "layers": 2}, "engine": engine_settings}
    )
    sources: list[Any] = [source(1, 2)]
    world = make_world(ranks, [2])
    maker = BatchMaker(settings, world)
    shares = Loader(maker.of(sources), world).load(scoring_router(sources, 2).route([0]))
    engine, _ = make_engine(
        settings.engine, build_model(settings), settings.optimizer, world.stopwatch
    )
    before = engine.weights()
    runner = StepRunner(engine, settings.training, world)
    if ranks.rank == 1 and settings.engine.name == "ddp":
        shares[0].batches[0].edge_features.fill_(torch.inf)
    elif ranks.rank == 1:
        parameter = next(engine.model.parameters())
        parameter.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    found = message(lambda: runner.run([0], shares, lr=1e-3))
    after = engine.weights()
    return found, all(torch.equal(before[name], after[name]) for name in before)


GRADIENT = "a gradient became NaN or infinite; lower optimizer.lr"
DIVERGING = {
    "ddp": ({"name": "ddp"}, "the loss became nan; lower optimizer.lr"),
    "zero1": ({"name": "deepspeed", "ds_config": "zero1"}, GRADIENT),
    "zero3": ({"name": "deepspeed", "ds_config": "zero3"}, GRADIENT),
}


@pytest.fixture(scope="module")
def diverged() -> dict[str, list[Any]]:
    return run_all(2, {name: (diverge, (engine,)) for name, (engine, _) in DIVERGING.items()})


@pytest.mark.parametrize("engine", DIVERGING)
def test_what_is_not_finite_stops_all_and_changes_no_weights(
    diverged: dict[str, list[Any]], engine: str
) -> None:
    for found, stayed in diverged[engine]:
        assert DIVERGING[engine][1] in str(found)
        assert stayed
