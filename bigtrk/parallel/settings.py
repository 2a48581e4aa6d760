"""The `engine` and `optimizer` sections of the configuration, and the names of the engines."""

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from bigtrk.config import Settings
from bigtrk.parallel.engines.spec import EngineSpec, Sharding, engine_spec

# The modules of engines/, from least to most sharded; each has the SPEC of its engine.
EngineName = Literal["ddp", "fsdp2", "deepspeed"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


class EngineSettings(Settings):
    """The engine that replicates or shards the model over ranks."""

    name: EngineName = "ddp"
    """`ddp`: a replica on each rank. `deepspeed`: ZeRO as `ds_config` says. `fsdp2`: sharded over
    blocks of `shard_ranks` neighbouring ranks and replicated over the blocks."""
    ds_config: str = "zero1"
    """DeepSpeed's settings: a shipped name (zero0, zero1, zero2, zero3, zero3_offload) or the path
    of a JSON file."""
    coalesced: bool = False
    """Average all gradients in one all-reduce per step (ddp)."""
    shard_ranks: int | None = Field(None, ge=2, lt=2**31)
    """Ranks that a replica is sharded over (fsdp2); all by default [ranks]."""

    @property
    def spec(self) -> EngineSpec:
        return engine_spec(self.name)

    def sharding(self, ranks: int) -> Sharding:
        """Returns how this engine divides its state over `ranks` ranks. Raises InputError if the
        DeepSpeed file cannot be read.
        """
        return self.spec.sharding(self, ranks)

    @model_validator(mode="after")
    def _fits_the_engine(self) -> Self:
        given = [option for option, value in self if value and option not in ("name", "ds_config")]
        for option in given:
            if option not in self.spec.options:
                name = next(name for name in ENGINES if option in engine_spec(name).options)
                raise ValueError(
                    f"engine.{option} is only for engine.name={name}; remove it for {self.name}"
                )
        return self


class OptimizerSettings(Settings):
    """The optimizer and its learning rate."""

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw`; or, with `engine.name=ddp`, `muon` for hidden matrices and AdamW for the others."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate, before `lr_scaling`."""
    lr_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Growth of the learning rate with `training.events_per_step`: `lr` is the rate for one event
    per step. `linear` multiplies it by the number of events (Goyal et al. 2017, for SGD), `sqrt` by
    its root (Malladi et al. 2022, for Adam).
    """
    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of all parameters, also biases, as in the field's own trainings."""
    schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """The learning rate after the warm-up: it stays (`constant`), falls to 0 at the end of the run
    along half a cosine (`cosine`), or is halved whenever the validation loss (without validation
    events, the training loss) has not improved for a while (`plateau`)."""
    warmup_steps: int = Field(0, ge=0, lt=2**31)
    """Length of the linear warm-up of the learning rate [steps]."""
    plateau_patience: int = Field(3, ge=0, lt=2**31)
    """Epochs without improvement that `plateau` waits [epochs]."""
    gradient_clipping: float = Field(0.0, ge=0)
    """The largest global norm of the gradients; 0 for no limit."""
