"""Norms of gradients and weights under every engine, against whole tensors."""

from typing import Any

import pytest
import torch

from bigtrk.parallel.engines.engine import make_engine
from bigtrk.parallel.ranks import Ranks
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import make_world
from bigtrk.records.metrics import NormsRecord
from bigtrk.training.data.batch import BatchMaker, Loader
from bigtrk.training.model_files import build_model
from bigtrk.training.monitoring.meter import Norms, group_of
from bigtrk.training.settings import Configuration
from bigtrk.training.step import StepRunner
from bigtrk.training.steps.routers import scoring_router
from tests.distributed.graphs import sources
from tests.distributed.parity import Oracle
from tests.distributed.ranks import run_ranks

ENGINES = {
    "DDP": EngineSettings(),
    "coalesced": EngineSettings(coalesced=True),
    "FSDP2": EngineSettings(name="fsdp2"),
    "FSDP2 hybrid": EngineSettings(name="fsdp2", shard_ranks=2),
    **{
        f"ZeRO-{stage}": EngineSettings(name="deepspeed", ds_config=f"zero{stage}")
        for stage in range(4)
    },
}
GROUPS = ["node_encoder", "edge_encoder", "layers.0", "layers.1", "layers.2", "decoder"]
EVENTS = range(len(sources()))
MODEL = {"hidden": 8, "layers": 3}
# Clips, and norms must be those from before.
OPTIMIZER = OptimizerSettings(gradient_clipping=1e-3)


def settings_of(engine: EngineSettings) -> Configuration:
    return Configuration.model_validate({"model": MODEL, "engine": engine.model_dump()})


def measured(ranks: Ranks) -> dict[str, list[Norms | None]]:
    """Returns, by engine, norms of a step over several micro-steps, and of one not asked for."""
    found = {}
    for name, engine_settings in ENGINES.items():
        settings = settings_of(engine_settings)
        events = sources()
        router = scoring_router(events, ranks.world_size)
        world = make_world(ranks, router.num_ranks)
        maker = BatchMaker(settings, world)
        engine, _ = make_engine(settings.engine, build_model(settings), OPTIMIZER, world.stopwatch)
        shares = Loader(maker.of(events), world).load(router.route(EVENTS))
        runner = StepRunner(engine, settings.training, world)
        found[name] = [
            runner.run(EVENTS, shares, 0.0, norms=asked).norms for asked in (True, False)
        ]
    return found


@pytest.fixture(scope="module")
def ranks_4() -> list[dict[str, list[Norms | None]]]:
    return run_ranks(4, measured)


def expected(tensors: dict[str, Any]) -> dict[str, float]:
    squares = dict.fromkeys(GROUPS, 0.0)
    for name, tensor in tensors.items():
        squares[group_of(name)] += float(tensor.double().square().sum())
    return {group: square**0.5 for group, square in squares.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_norms_are_those_of_the_whole_model(
    ranks_4: list[dict[str, list[Norms | None]]], engine: str
) -> None:
    settings = settings_of(ENGINES[engine])
    gradients = Oracle(settings, [event.graph for event in sources()]).gradients()
    weights = build_model(settings).state_dict()
    for result in ranks_4:
        norms, unasked = result[engine]
        assert unasked is None
        assert norms is not None
        assert list(norms.gradient) == list(norms.weight) == GROUPS
        assert norms.gradient == pytest.approx(expected(gradients), rel=1e-4)
        assert norms.weight == pytest.approx(expected(weights), rel=1e-6)
        assert norms == ranks_4[0][engine][0], "the same bits on all ranks"


def test_what_is_not_finite_is_none_in_the_record() -> None:
    norms = Norms({"decoder": torch.inf}, {"decoder": 2.0})
    assert not norms.finite_gradient
    assert norms.record() == NormsRecord(gradient={"decoder": None}, weight={"decoder": 2.0})


@pytest.mark.parametrize(
    ("parameter", "group"),
    [
        ("layers.12.edge_mlp.0.weight", "layers.12"),
        ("decoder.mlp.0.bias", "decoder"),
        ("scale", "scale"),
    ],
)
def test_a_group_is_a_module_or_one_of_a_list(parameter: str, group: str) -> None:
    assert group_of(parameter) == group
