"""The keys that a DeepSpeed JSON file may have, and their types.

DeepSpeed ignores a misspelt top-level key, and finds a value of a wrong type when it first computes
with it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

import bigtrk
from bigtrk.config import Count, Settings, nearest, parse
from bigtrk.console import given_path
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError, one_line

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


class _FlopsProfiler(Settings):
    model_config = ConfigDict(strict=True)

    enabled: bool = False
    recompute_fwd_factor: float = Field(0.0, ge=0)
    profile_step: Count = 1
    module_depth: int = Field(-1, ge=-1)
    top_modules: Count = 1
    detailed: bool = True
    output_file: str | None = None


class _File(Settings):
    """The keys that remain to DeepSpeed and have a use here."""

    model_config = ConfigDict(strict=True)

    zero_optimization: _Zero = _Zero()
    zero_allow_untested_optimizer: bool = False
    zero_force_ds_cpu_optimizer: bool = True
    comms_logger: dict[str, Any] | None = None
    communication_data_type: Literal["fp16", "bf16", "fp32"] | None = None
    steps_per_print: Annotated[int, Field(ge=1)] | None = None
    wall_clock_breakdown: bool = False
    memory_breakdown: bool = False
    dump_state: bool = False
    flops_profiler: _FlopsProfiler = _FlopsProfiler()
    tensorboard: dict[str, Any] | None = None
    wandb: dict[str, Any] | None = None
    csv_monitor: dict[str, Any] | None = None


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
