"""The `engine` and `optimizer` sections of the configuration, and which engines there are."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from bigtrk.config import Settings

EngineName = Literal["ddp", "deepspeed", "fsdp2"]


@dataclass(frozen=True)
class EngineSpec:
    """An engine, as far as others know it: the `module` in engines/ whose `make` makes it; the
    `options` of the section that others refuse; whether each rank has whole matrices, as Muon
    needs; whether `training.auto` may choose it.
    """

    module: str
    options: tuple[str, ...] = ()
    whole_matrices: bool = False
    automatic: bool = False


# Ever more sharded.
ENGINES: dict[EngineName, EngineSpec] = {
    "ddp": EngineSpec("ddp", ("coalesced",), whole_matrices=True, automatic=True),
    "fsdp2": EngineSpec("fsdp", ("shard_ranks",), automatic=True),
    "deepspeed": EngineSpec("deepspeed_engine"),
}


class EngineSettings(Settings):
    """The engine, by which ranks share the model."""

    name: EngineName = "ddp"
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
        own = ENGINES[self.name].options
        for name, spec in ENGINES.items():
            for option in spec.options:
                if option not in own and getattr(self, option):
                    raise ValueError(
                        f"engine.{option} is an option of {name}; remove it for {self.name}"
                    )
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
