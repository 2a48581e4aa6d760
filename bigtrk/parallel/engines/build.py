"""The choice of engine."""

from collections.abc import Mapping

from torch import nn

from bigtrk.parallel.engines.ddp import DDPEngine
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.stopwatch import Stopwatch

_ALL_ALIKE: Mapping[str, float] = {}


def make_engine(
    settings: EngineSettings,
    model: nn.Module,
    optimizer: OptimizerSettings,
    stopwatch: Stopwatch,
    lr_factors: Mapping[str, float] = _ALL_ALIKE,
) -> tuple[Engine, str]:
    """Makes the configured engine around `model`; names it for people ("ZeRO-1"). Collective.

    lr_factors: as `parameter_groups` takes them.

    Raises:
        InputError: on all ranks, the settings do not fit the ranks, or the model's parameters.
    """
    if settings.name == "ddp":
        name = "DDP, coalesced" if settings.coalesced else "DDP"
        return DDPEngine(model, optimizer, stopwatch, lr_factors, settings.coalesced), name
    if settings.name == "fsdp2":
        return _make_fsdp2(model, optimizer, lr_factors, settings.shard_ranks)
    # Importing DeepSpeed takes seconds, which other runs should not pay.
    from bigtrk.parallel.engines.deepspeed_engine import make_deepspeed

    engine = make_deepspeed(model, optimizer, stopwatch, lr_factors, settings.ds_config)
    return engine, f"DeepSpeed ZeRO-{engine.stage}"


def _make_fsdp2(
    model: nn.Module,
    optimizer: OptimizerSettings,
    lr_factors: Mapping[str, float],
    shard_ranks: int | None,
) -> tuple[Engine, str]:
    # It is as slow to import as it is rarely wanted.
    from bigtrk.parallel.engines.fsdp import FSDP2Engine

    engine = FSDP2Engine(model, optimizer, lr_factors, shard_ranks)
    return engine, f"FSDP2 in blocks of {shard_ranks}" if shard_ranks else "FSDP2"
