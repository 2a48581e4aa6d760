"""The `engine` and `optimizer` sections of the configuration."""

from typing import Literal

from pydantic import Field

from bigtrk.config import Settings


class EngineSettings(Settings):
    """How ranks share the model: `ddp`, or `deepspeed` with one of the `ds_configs`."""

    name: Literal["ddp", "deepspeed"] = "ddp"
    ds_config: str = "zero1"  # a shipped name or the path of a JSON file


class OptimizerSettings(Settings):
    """AdamW. `gradient_clipping` is the largest global norm, 0 for none."""

    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(0, ge=0)
    gradient_clipping: float = Field(0.0, ge=0)
