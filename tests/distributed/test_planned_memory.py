"""The memory that `bigtrk plan` counts for engines, against what these hold."""

import pytest

from bigtrk.config import load_settings
from bigtrk.cost.machines import CPU
from bigtrk.parallel.ranks import Ranks
from bigtrk.training.fitting import make_cost
from bigtrk.training.settings import Configuration
from tests.distributed.held_memory import measure
from tests.distributed.ranks import run_ranks

ENGINES = {
    "DDP": ("engine.name=ddp",),
    "FSDP2": ("engine.name=fsdp2",),
    **{
        f"ZeRO-{stage}": ("engine.name=deepspeed", f"engine.ds_config=zero{stage}")
        for stage in (1, 2, 3)
    },
}


def configuration(engine: str) -> Configuration:
    return load_settings(Configuration, None, ["model.hidden=64", *ENGINES[engine]])


def measure_engines(ranks: Ranks) -> dict[str, dict[str, int]]:
    return {engine: measure(ranks, configuration(engine))["bytes"] for engine in ENGINES}


def test_engines_hold_what_is_planned() -> None:
    """The storages of living engines after a backward pass; 4 %, since padding differs."""
    held = run_ranks(3, measure_engines)[0]
    for engine in ENGINES:
        cost = make_cost(configuration(engine), 3, 3, CPU)
        weights = cost.footprint(cut=False).weights
        planned = cost.sharding.held(weights, on_host=True)
        levers = ("optimizer", *(() if cost.sharding.lockstep else ("parameters",)))
        for lever in levers:
            numbers = held[engine][lever] / 4
            assert numbers == pytest.approx(getattr(planned, lever), rel=0.04), (engine, lever)
