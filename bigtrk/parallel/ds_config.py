"""DeepSpeed's JSON files: found, checked against our configuration, completed.

DeepSpeed ignores a misspelt top-level key and takes defaults for what is absent; both have cost
people whole trainings, so the file is checked here before DeepSpeed sees it.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

import bigtrk
from bigtrk.config import nearest
from bigtrk.errors import InputError
from bigtrk.files import read_json
from bigtrk.machine import accelerator
from bigtrk.parallel.settings import OptimizerSettings

if TYPE_CHECKING:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

# Set from our own configuration; a second value in the JSON file could only disagree.
OURS = {
    "train_batch_size": "training.events_per_step",
    "train_micro_batch_size_per_gpu": "training.events_per_step",
    "gradient_accumulation_steps": "training.events_per_step",
    "gradient_clipping": "optimizer.gradient_clipping",
    "optimizer": "optimizer",
    "scheduler": "optimizer.schedule",
    "bf16": "model.precision",
    "fp16": "model.precision",
    "activation_checkpointing": "model.recompute",
}
# What remains to DeepSpeed and has a use here.
THEIRS = (
    "zero_optimization",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "comms_logger",
    "communication_data_type",
    "steps_per_print",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "flops_profiler",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "aio",
)


def find_ds_config(name: str) -> Path:
    """The JSON file of a shipped name ("zero1"), or the path itself.

    Raises:
        InputError: there is neither such a file nor such a name.
    """
    if Path(name).is_file():
        return Path(name)
    package = Path(bigtrk.__file__).parent
    # Beside the package in a checkout, inside it once installed from a wheel.
    folders = [package.parent / "ds_configs", package / "ds_configs"]
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    shipped = sorted(path.stem for folder in folders for path in folder.glob("*.json"))
    raise InputError(f"engine.ds_config: no file {name!r}{nearest(name, shipped)}")


def load_ds_config(name: str, optimizer: OptimizerSettings) -> dict[str, Any]:
    """Read and check a DeepSpeed file and fill in what our configuration decides.

    Raises:
        InputError: an unknown key, one that belongs to our configuration, or clipping without norm.
    """
    path, content = _read(name)
    for key in content:
        if key in OURS:
            raise InputError(f"{path}: remove {key!r}; bigtrk sets it from {OURS[key]!r}")
        if key not in THEIRS:
            raise InputError(f"{path}: unknown key {key!r}{nearest(key, THEIRS)}")
    zero = _zero_section(path, content)
    _refuse_unresumable(path, zero)
    if not zero.compute_grad_norm and optimizer.gradient_clipping:
        raise InputError(_without_norm(path, "optimizer.gradient_clipping=0"))
    return {
        "steps_per_print": 2**31,
        **content,
        # The accumulation boundary is set at run time: steps differ in their micro-steps.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Always written out: the default became 1.0 in DeepSpeed 0.19.3.
        "gradient_clipping": optimizer.gradient_clipping,
    }


def check_drops_steps(name: str, optimizer: OptimizerSettings) -> None:
    """The spike guard needs an engine that can drop a step, which ZeRO does by its norm.

    Raises:
        InputError: the DeepSpeed file switches the norm off; or as `load_ds_config`.
    """
    load_ds_config(name, optimizer)
    if not zero_settings(name).compute_grad_norm:
        raise InputError(_without_norm(find_ds_config(name), "training.spike_guard=off"))


def zero_settings(name: str) -> "DeepSpeedZeroConfig":
    """The section of ZeRO in a DeepSpeed file, completed by DeepSpeed's defaults.

    Raises:
        InputError: there is no such file, or a key or value in the section is unknown.
    """
    return _zero_section(*_read(name))


def _read(name: str) -> tuple[Path, dict[str, Any]]:
    """A DeepSpeed file and its content."""
    path = find_ds_config(name)
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a JSON object")
    return path, content


def _without_norm(path: Path, remedy: str) -> str:
    return (
        f"{path}: remove 'zero_optimization.compute_grad_norm', without which ZeRO cannot judge a "
        f"step's gradients, or set {remedy}"
    )


def _refuse_unresumable(path: Path, zero: "DeepSpeedZeroConfig") -> None:
    """What checkpoints cannot hold, or a resumed run would silently not get back: hpZ computes with
    copies of the weights within a node, which loading the weights leaves as they were.
    """
    for key in ("offload_optimizer", "offload_param"):
        section = getattr(zero, key)
        if section is not None and section.device == "nvme":
            raise InputError(
                f"{path}: zero_optimization.{key}.device is nvme, of which no checkpoint can be "
                f"made; set it to cpu"
            )
    if zero.zero_hpz_partition_size > 1:
        raise InputError(
            f"{path}: remove 'zero_optimization.zero_hpz_partition_size', with which a run could "
            f"not be resumed"
        )


def _zero_section(path: Path, content: dict[str, Any]) -> "DeepSpeedZeroConfig":
    """The section of ZeRO, checked."""
    section = content.get("zero_optimization", {})
    if accelerator() == "cpu":
        # Without it DeepSpeed prints that it found no accelerator, among the lines of --json too.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # slow: only where it is used

    fields = DeepSpeedZeroConfig.model_fields
    known: Collection[str] = {*fields, *(str(f.alias) for f in fields.values() if f.alias)}
    for key in section:
        if key not in known:
            hint = nearest(key, sorted(known))
            raise InputError(f"{path}: unknown key 'zero_optimization.{key}'{hint}")
    try:
        return DeepSpeedZeroConfig(**section)
    except ValidationError as error:
        reasons = "; ".join(
            f"zero_optimization.{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors()
        )
        raise InputError(f"{path}: {reasons}") from None
