"""The `engine` and `optimizer` sections of the configuration."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings


class EngineSettings(Settings):
    """The engine: how ranks share the model.

    ddp: a replica on each rank; with `coalesced` all gradients are averaged in one all-reduce per
    step. deepspeed: ZeRO as `ds_config` says. fsdp2: sharded over blocks of `shard_ranks`
    neighbouring ranks and replicated over the blocks; sharded over all ranks without it.
    """

    name: Literal["ddp", "deepspeed", "fsdp2"] = "ddp"
    ds_config: str = "zero1"  # a shipped name or the path of a JSON file
    coalesced: bool = False
    shard_ranks: int | None = Field(None, ge=2, lt=2**31)

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        if self.coalesced and self.name != "ddp":
            raise ValueError(f"engine.coalesced is an option of ddp; remove it for {self.name}")
        if self.shard_ranks is not None and self.name != "fsdp2":
            raise ValueError(f"engine.shard_ranks is an option of fsdp2; remove it for {self.name}")
        return self


class OptimizerSettings(Settings):
    """AdamW. `gradient_clipping` is the largest global norm, 0 for none.

    weight_decay: applied to all parameters, biases too, as in the field's own trainings.

    schedule: after a linear warm-up over `warmup_steps` the learning rate stays (`constant`),
    falls to 0 at the end of the run along half a cosine (`cosine`), or is halved whenever the
    validation loss (without validation events, the training loss) has not improved for more than
    `plateau_patience` epochs (`plateau`).

    lr_scaling: how `lr` grows with training.events_per_step. `lr` is that of one event per step;
    `linear` multiplies it by their number (Goyal et al. 2017, for SGD), `sqrt` by its root (Malladi
    et al. 2022, for Adam).
    """

    lr: float = Field(1e-3, gt=0)
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    weight_decay: float = Field(0.01, ge=0)
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    warmup_steps: int = Field(0, ge=0, lt=2**31)
    plateau_patience: int = Field(3, ge=0, lt=2**31)
    gradient_clipping: float = Field(0.0, ge=0)
