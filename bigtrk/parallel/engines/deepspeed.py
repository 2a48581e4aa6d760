"""The parts of DeepSpeed ZeRO that need no import of DeepSpeed: its files, and its memory.

JSON files are checked against our configuration and by DeepSpeed itself, and completed: DeepSpeed
ignores a misspelt top-level key, and takes defaults for absent ones. ZeRO's memory is counted by
what its sources allocate: deepspeed/runtime/zero and deepspeed/runtime/engine.py of 0.19.8.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field
from torch import nn

import bigtrk
from bigtrk.config import Settings, nearest, parse
from bigtrk.console import given_path
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError
from bigtrk.machine import accelerator
from bigtrk.parallel.engines.engine import Engine
from bigtrk.parallel.engines.spec import EngineSpec, Held, Level, Sharding, Weights
from bigtrk.parallel.settings import EngineSettings, OptimizerSettings
from bigtrk.parallel.world import Stopwatch

if TYPE_CHECKING:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

# DeepSpeed keys that bigtrk sets -> our setting; a second value in the file could only disagree.
OURS = {
    "train_batch_size": "training.events_per_step",
    "train_micro_batch_size_per_gpu": "training.events_per_step",
    "gradient_accumulation_steps": "training.events_per_step",
    "gradient_clipping": "optimizer.gradient_clipping",
    "optimizer": "optimizer.name",
    "scheduler": "optimizer.schedule",
    "bf16": "model.precision",
    "fp16": "model.precision",
    "activation_checkpointing": "model.recompute",
}


class _File(Settings):
    """The keys of a DeepSpeed file that bigtrk accepts; DeepSpeed checks zero_optimization."""

    model_config = ConfigDict(strict=True)

    zero_optimization: dict[str, Any] = Field(default_factory=dict)
    zero_allow_untested_optimizer: bool = False
    zero_force_ds_cpu_optimizer: bool = True
    communication_data_type: Literal["fp16", "bf16", "fp32"] | None = None
    steps_per_print: Annotated[int, Field(ge=1)] | None = None


def find_ds_config(name: str) -> Path:
    """Returns the path of a DeepSpeed JSON file: `name` is a path or a shipped name ("zero1").
    Raises InputError if there is neither such a file nor such a name.
    """
    if given_path(name).is_file():
        return given_path(name)
    package = Path(bigtrk.__file__).parent
    # It lies next to the package in a checkout, inside it once installed from a wheel.
    folders = [package.parent / "ds_configs", package / "ds_configs"]
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    shipped = sorted(path.stem for folder in folders for path in folder.glob("*.json"))
    raise InputError(f"engine.ds_config: no file {name!r}{nearest(name, shipped)}")


def read_ds_file(path: Path) -> tuple[dict[str, Any], "DeepSpeedZeroConfig"]:
    """Reads and checks a DeepSpeed file. Returns its content, and its ZeRO section with DeepSpeed's
    defaults filled in. Raises InputError if the file cannot be read, or a key is unknown, belongs
    to our configuration, or has a value of another type.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a JSON object, as in ds_configs/zero1.json")
    for key in sorted(OURS.keys() & content.keys()):
        raise InputError(f"{path}: remove {key!r}; set bigtrk's own {OURS[key]} instead")
    section = parse(_File, content, str(path)).zero_optimization
    stage = section.get("stage", 0)
    if type(stage) is not int or stage not in range(4):  # DeepSpeed also takes text
        told = f"zero_optimization.stage: must be 0 to 3, as a number (got {stage!r:.40})"
        raise InputError(f"{path}: {told}")
    if accelerator() == "cpu":
        # Without it DeepSpeed prints that it found no accelerator, among the lines of --json too.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # a slow import

    return content, parse(DeepSpeedZeroConfig, section, f"{path}: zero_optimization")


def load_ds_config(name: str, optimizer: OptimizerSettings, weights: int) -> dict[str, Any]:
    """Reads and checks a DeepSpeed file; returns the configuration for DeepSpeed, with the values
    that bigtrk's configuration and the number of the model's weights decide. Raises InputError for
    an unknown key, or one that belongs to our configuration or has no use here.
    """
    path = find_ds_config(name)
    content, zero = read_ds_file(path)
    _refuse_useless(path, zero)
    # DeepSpeed makes a buffer of a bucket's size, 2 GB by default, for a model of any size.
    bucket = min(zero.reduce_bucket_size, weights)
    return {
        "steps_per_print": 2**31,
        **content,
        "zero_optimization": {
            **content.get("zero_optimization", {}),
            "reduce_bucket_size": bucket,
        },
        # The accumulation boundary is set at run time: steps differ in their micro-steps.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Always written out: the default became 1.0 in DeepSpeed 0.19.3.
        "gradient_clipping": optimizer.gradient_clipping,
    }


def _refuse_useless(path: Path, zero: "DeepSpeedZeroConfig") -> None:
    """Raises InputError for settings that checkpoints cannot hold or a resumed run would silently
    lose: hpZ computes with copies of the weights within a node, which loading weights leaves
    unchanged. Without its norm ZeRO can neither clip nor drop a step.
    """
    if not zero.compute_grad_norm:
        raise InputError(
            f"{path}: 'zero_optimization.compute_grad_norm' is off, but bigtrk needs the norm of "
            "the gradients; remove this key"
        )
    for key in ("offload_optimizer", "offload_param"):
        section = getattr(zero, key)
        if section is not None and section.device == "nvme":
            raise InputError(
                f"{path}: zero_optimization.{key}.device is nvme, from which bigtrk cannot "
                "write checkpoints; set it to cpu"
            )
    if zero.zero_hpz_partition_size > 1:
        raise InputError(
            f"{path}: with 'zero_optimization.zero_hpz_partition_size' a run cannot be resumed; "
            "remove this key"
        )


@dataclass(frozen=True, kw_only=True)
class ZeroSharding(Sharding):
    """The sharding of a stage of ZeRO; `zero` has the buffer sizes of its file."""

    zero: "DeepSpeedZeroConfig"

    def held(self, weights: Weights, on_host: bool) -> Held:
        """Returns how many float32 values a rank holds; on_host: on a CPU."""
        n, part = weights.total, weights.total / self.ranks
        if self.level == "none":
            # All gradients are flattened into one tensor to be averaged.
            return Held(n, n, 2 * n, after=max(n, 2 * weights.parameter))
        bucket = min(n, self.zero.reduce_bucket_size)
        if self.level == "parameters":
            return self._gathered(weights, part, bucket, on_host)
        # Stages 1 and 2 update a float32 copy of this rank's part, and have AdamW's moments of it.
        # A bucket collects the gradients, at once (stage 2) or at the step's end (stage 1). It is
        # flattened into another to be reduced; this rank's part of that is flattened again for
        # AdamW, which makes two tensors of its size.
        first = self.level == "optimizer"
        gradients = n if first else min(n, bucket + part)
        return Held(
            parameters=n,
            gradients=gradients,
            optimizer=3 * part,
            # A system gives memory only to the part of a CPU's buffer that is written.
            buffers=bucket if first and not on_host else 0,
            after=max(bucket, 3 * part - gradients),
        )

    def _gathered(self, weights: Weights, part: float, bucket: int, on_host: bool) -> Held:
        """Counts stage 3, which keeps a bucket and this rank's part of the gradients from the first
        step on.

        A gathered weight is kept if at most max_reuse_distance weights are passed before it is
        needed again; between two uses of a weight, the pass moves past the others twice, forward
        and backward. Weights gathered together are copied once more, and so is a bucket to be
        reduced, by DeepSpeed and by gloo.
        """
        n, prefetched = weights.total, self.zero.prefetch_bucket_size
        offloads = self.zero.offload_optimizer is not None
        whole, ahead = 0, 0
        if self.ranks > 1:
            whole = min(n, max(self.zero.max_reuse_distance // 2, prefetched + weights.layer))
            ahead = min(n, prefetched)
        # AdamW makes two tensors of its part's size, and the gradients are flattened for it.
        updated = part * (2 if offloads else 3)
        reduced = bucket * (2 if on_host else 1)
        return Held(
            parameters=part + whole,
            gradients=part * (2 if offloads else 1) + bucket,
            optimizer=3 * part,
            after=max(ahead, reduced - whole, updated - whole, 0),
        )


def _sharding(settings: EngineSettings, ranks: int) -> Sharding:
    """Returns how ZeRO divides its state. InputError: bad file, or unknown key or value in it."""
    _, zero = read_ds_file(find_ds_config(settings.ds_config))
    stage = int(zero.stage)
    return ZeroSharding(
        name=f"DeepSpeed ZeRO-{stage}",
        level=get_args(Level)[stage],
        ranks=ranks,
        scatters_often=stage > 1,
        # ZeRO 1 to 3 import torch's compiler.
        module_bytes=(127 if stage else 15) * 2**20,
        zero=zero,
    )


def _make(
    settings: EngineSettings,
    model: nn.Module,
    optimizer: OptimizerSettings,
    stopwatch: Stopwatch,
    lr_factors: Mapping[str, float],
) -> Engine:
    """Makes the engine of a shipped or own DeepSpeed file; arguments as for `make_engine`."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    content = load_ds_config(settings.ds_config, optimizer, weights)
    from bigtrk.parallel.engines.deepspeed_engine import DeepSpeedEngine  # takes seconds

    return DeepSpeedEngine(model, optimizer, stopwatch, lr_factors, content)


SPEC = EngineSpec(_make, _sharding)
