"""The choice of engine."""

from torch import nn

from bigtrk.parallel.ddp import DDPEngine
from bigtrk.parallel.engine import Engine
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.stopwatch import Stopwatch


def make_engine(
    settings: EngineSettings, model: nn.Module, optimizer: OptimizerSettings, stopwatch: Stopwatch
) -> tuple[Engine, str]:
    """The configured engine around `model`, and its name for people ("ZeRO-1"). Collective."""
    if settings.name == "ddp":
        return DDPEngine(model, optimizer, stopwatch), "DDP"
    # Importing DeepSpeed takes seconds, which a DDP run should not pay.
    from bigtrk.parallel.deepspeed_engine import make_deepspeed

    engine = make_deepspeed(model, optimizer, stopwatch, settings.ds_config)
    return engine, f"DeepSpeed ZeRO-{engine.stage}"
