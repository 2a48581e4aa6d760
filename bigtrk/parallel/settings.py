"""The `engine` and `optimizer` sections of the configuration."""

from typing import Literal, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings


class EngineSettings(Settings):
    """The engine, by which ranks share the model."""

    name: Literal["ddp", "deepspeed", "fsdp2"] = "ddp"
    """`ddp`: a replica on each rank. `deepspeed`: ZeRO as `ds_config` says. `fsdp2`: sharded over
    blocks of `shard_ranks` neighbouring ranks and replicated over the blocks."""
    ds_config: str = "zero1"
    """With deepspeed: a shipped name (zero0, zero1, zero2, zero3, zero3_offload) or the path of a
    JSON file."""
    coalesced: bool = False
    """With ddp: average all gradients in one all-reduce per step."""
    shard_ranks: int | None = Field(None, ge=2, lt=2**31)
    """With fsdp2: ranks that a replica is sharded over; all without it [ranks]."""

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        if self.coalesced and self.name != "ddp":
            raise ValueError(f"engine.coalesced is an option of ddp; remove it for {self.name}")
        if self.shard_ranks is not None and self.name != "fsdp2":
            raise ValueError(f"engine.shard_ranks is an option of fsdp2; remove it for {self.name}")
        return self


class OptimizerSettings(Settings):
    """The optimizer and its learning rate."""

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`; or, with `engine.name=ddp`, `muon` for hidden matrices and AdamW for all else."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate, before `lr_scaling`."""
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Growth of the learning rate with `training.events_per_step`: `lr` is that of one event per
    step; `linear` multiplies it by their number (Goyal et al. 2017, for SGD), `sqrt` by its root
    (Malladi et al. 2022, for Adam).
    """
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of all parameters, biases too, as in the field's own trainings."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """After the warm-up the learning rate stays (`constant`), falls to 0 at the end of the run
    along half a cosine (`cosine`), or is halved whenever the validation loss (without validation
    events, the training loss) has not improved for a while (`plateau`)."""
    warmup_steps: int = Field(0, ge=0, lt=2**31)
    """Length of the linear warm-up of the learning rate [steps]."""
    plateau_patience: int = Field(3, ge=0, lt=2**31)
    """The time without improvement that `plateau` tolerates [epochs]."""
    gradient_clipping: float = Field(0.0, ge=0)
    """The largest global norm of the gradients; 0 for no limit."""
