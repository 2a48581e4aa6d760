"""DeepSpeed's JSON files, checked against our configuration and by DeepSpeed itself, completed.

DeepSpeed ignores a misspelt top-level key, and takes defaults for what is absent.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

import bigtrk
from bigtrk.config import Settings, nearest, parse
from bigtrk.console import given_path
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError, one_line
from bigtrk.machine import accelerator
from bigtrk.parallel.settings import OptimizerSettings

if TYPE_CHECKING:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

# These are set from our own configuration; a second value in the file could only disagree.
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


class _Zero(Settings):
    """The section of ZeRO: the stage; DeepSpeed itself checks the others."""

    model_config = ConfigDict(extra="allow")

    stage: Literal[0, 1, 2, 3] = 0


class _File(Settings):
    """The keys that remain to DeepSpeed and have a use here."""

    model_config = ConfigDict(strict=True)

    zero_optimization: _Zero = _Zero()
    zero_allow_untested_optimizer: bool = False
    zero_force_ds_cpu_optimizer: bool = True
    communication_data_type: Literal["fp16", "bf16", "fp32"] | None = None
    steps_per_print: Annotated[int, Field(ge=1)] | None = None


def find_ds_config(name: str) -> Path:
    """Returns the JSON file of a shipped name ("zero1"), or the path itself.

    Raises:
        InputError: there is neither such a file nor such a name.
    """
    if given_path(name).is_file():
        return given_path(name)
    package = Path(bigtrk.__file__).parent
    # It lies beside the package in a checkout, inside it once installed from a wheel.
    folders = [package.parent / "ds_configs", package / "ds_configs"]
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    shipped = sorted(path.stem for folder in folders for path in folder.glob("*.json"))
    raise InputError(f"engine.ds_config: no file {name!r}{nearest(name, shipped)}")


def read_ds_file(path: Path) -> dict[str, Any]:
    """Returns the content of a DeepSpeed file, its keys and the types of their values checked.

    Raises:
        InputError: the file cannot be read, or a key is unknown, belongs to our configuration, or
            has a value of another type.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a JSON object")
    known = list(_File.model_fields)
    for key in content:
        if key in OURS:
            raise InputError(f"{path}: remove {key!r}; bigtrk sets it from {OURS[key]!r}")
        if key not in known:
            raise InputError(f"{path}: unknown key {one_line(repr(key))}{nearest(key, known)}")
    parse(_File, content, str(path))
    return content


def load_ds_config(name: str, optimizer: OptimizerSettings) -> dict[str, Any]:
    """Reads and checks a DeepSpeed file and fills in what our configuration decides.

    Raises:
        InputError: an unknown key, or one that belongs to our configuration or has no use here.
    """
    path = find_ds_config(name)
    content = read_ds_file(path)
    _refuse_useless(path, _zero_section(path, content))
    return {
        "steps_per_print": 2**31,
        **content,
        # The accumulation boundary is set at run time: steps differ in their micro-steps.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # Always written out: the default became 1.0 in DeepSpeed 0.19.3.
        "gradient_clipping": optimizer.gradient_clipping,
    }


def with_bucket_of(content: dict[str, Any], most: int) -> dict[str, Any]:
    """Returns what `load_ds_config` read with a bucket of at most so many numbers."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    zero = content.get("zero_optimization", {})
    bucket = min(DeepSpeedZeroConfig(**zero).reduce_bucket_size, most)
    return {**content, "zero_optimization": {**zero, "reduce_bucket_size": bucket}}


def zero_settings(name: str) -> "DeepSpeedZeroConfig":
    """Returns the section of ZeRO in a DeepSpeed file, completed by DeepSpeed's defaults.

    Raises:
        InputError: as `read_ds_file`, or a key or value in the section is unknown.
    """
    path = find_ds_config(name)
    return _zero_section(path, read_ds_file(path))


def _refuse_useless(path: Path, zero: "DeepSpeedZeroConfig") -> None:
    """Refuses what checkpoints cannot hold, or a resumed run would silently lose: hpZ computes with
    copies of the weights within a node, which loading the weights leaves as they were. Without its
    norm ZeRO can neither clip nor drop a step.
    """
    if not zero.compute_grad_norm:
        raise InputError(
            f"{path}: remove 'zero_optimization.compute_grad_norm', without which ZeRO cannot "
            f"judge a step's gradients"
        )
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
    """Returns the section of ZeRO as DeepSpeed reads it."""
    if accelerator() == "cpu":
        # Without it DeepSpeed prints that it found no accelerator, among the lines of --json too.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # slow: only where it is used

    section = content.get("zero_optimization") or {}
    fields = DeepSpeedZeroConfig.model_fields
    known = {*fields, *(str(field.alias) for field in fields.values() if field.alias)}
    for key in section:
        if key not in known:
            named = one_line(repr(f"zero_optimization.{key}"))
            raise InputError(f"{path}: unknown key {named}{nearest(key, sorted(known))}")
    try:
        return DeepSpeedZeroConfig(**section)
    except ValidationError as error:
        complaints = (
            one_line(f"zero_optimization.{'.'.join(map(str, item['loc']))}: {item['msg']}")
            for item in error.errors()
        )
        raise InputError(f"{path}: {'; '.join(complaints)}") from None
