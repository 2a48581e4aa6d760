"""Checkpoints of Lightning, as acorn's trainings write them: weights by name, and the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from bigtrk.disk.files import atomic_path, check_file
from bigtrk.disk.unpacking import HEAD, refuse_old_torch
from bigtrk.errors import InputError, one_line, reason
from bigtrk.formats.acorn.restricted import Held, made, read_archive

_REMEDY = "name a checkpoint (.ckpt) of an acorn training"
_WITHOUT = "save its state_dict and hyper_parameters alone"
# What Lightning writes beside weights and settings: paths, counters of schedules, numpy's numbers.
_HELD = (
    "__builtin__.set",
    "_codecs.encode",
    "argparse.Namespace",
    "collections.Counter",
    "collections.defaultdict",
    "lightning.",
    "lightning_fabric.",
    "numpy.",
    "pathlib.",
    "pytorch_lightning.",
)
# A Lightning of this version, and each later one, reads what is written here as it is.
_LIGHTNING = "2.2.0"


@dataclass(frozen=True)
class AcornCheckpoint:
    """The settings of a model of acorn's, as its YAML names them, and its weights by name."""

    hyper_parameters: Mapping[str, Any]
    weights: dict[str, Tensor]


def read_checkpoint(file: Path) -> AcornCheckpoint:
    """Reads a checkpoint; nothing in it is run.

    Raises:
        InputError: it is missing, damaged, no checkpoint of Lightning or one with code in it, or a
            weight is not finite.
    """
    settings, weights = _parts(file)
    for name, tensor in weights.items():
        _check(tensor, f"{file}: state_dict: {one_line(name)}")
    return AcornCheckpoint(settings, weights)


def _parts(file: Path) -> list[dict[str, Any]]:
    """Returns the settings and the weights as the file has them."""
    check_file(file)
    try:
        with file.open("rb") as opened:
            refuse_old_torch(file, opened.read(HEAD))
        with ZipFile(file) as archive:
            content = read_archive(file, archive, _HELD, _WITHOUT)
            return [_part(file, content, key) for key in ("hyper_parameters", "state_dict")]
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and pickle promise no one kind for damage
        raise InputError(
            f"{file}: is no checkpoint that torch.save wrote, or damaged ({reason(error)}); "
            f"{_REMEDY}"
        ) from None


def _part(file: Path, content: Any, key: str) -> dict[str, Any]:
    part = content.get(key) if isinstance(content, dict) else None
    part = part.items if isinstance(part, Held) else part  # Lightning's AttributeDict
    if not isinstance(part, dict) or not all(isinstance(name, str) for name in part):
        raise InputError(f"{file}: has no {key}; {_REMEDY}")
    return made(part)


def _check(tensor: Any, what: str) -> None:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise InputError(f"{what} is no tensor of weights; {_REMEDY}")
    if not tensor.isfinite().all():
        raise InputError(f"{what} is not finite; name a checkpoint from before the loss diverged")


def write_checkpoint(file: Path, checkpoint: AcornCheckpoint) -> None:
    """Writes a checkpoint of which acorn loads the model. It holds no state of an optimizer, with
    which acorn would go on with a training. The file is there whole or not at all.

    Raises:
        OSError: the disk refuses.
    """
    content = {
        "epoch": 0,
        "global_step": 0,
        "pytorch-lightning_version": _LIGHTNING,
        "state_dict": checkpoint.weights,
        # The name of the argument by which acorn's models take their settings.
        "hparams_name": "hparams",
        "hyper_parameters": dict(checkpoint.hyper_parameters),
    }
    with atomic_path(file) as temporary:
        torch.save(content, temporary)
