"""The model that a stage's run ended with, and the shares that its validation looked for."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from bigtrk.errors import InputError
from bigtrk.models.options import Kind
from bigtrk.training.model_files import StoredModel, load_model
from bigtrk.training.run_folder import weights_of

CPU = torch.device("cpu")
_DOES = {"hit": "embeds hits", "edge": "classifies edges"}
_NAMES = {"hit": "model.name=embedding", "edge": "model.name=mlp, or another for edges"}


def load_trained(run: Path, kind: Kind, device: torch.device) -> tuple[StoredModel, str]:
    """Loads the model of `kind` that `run` ended with on `device`, and the digest of its weights.

    Raises:
        InputError: the folder has no model, or one of the other kind.
    """
    stored = load_model(run)
    model = stored.configuration.model
    if model.kind != kind:
        raise InputError(
            f"{run}: its model ({model.name}) {_DOES[model.kind]}; name a run that was trained "
            f"with {_NAMES[kind]}"
        )
    stored.model.to(device).eval()
    return stored, hashlib.sha256(weights_of(run).read_bytes()).hexdigest()


def share_name(kept: Mapping[str, float], efficiency: float, instead: str) -> str:
    """Returns the name of a share of target edges among those that validations look for.

    Raises:
        InputError: none is so; `instead` is the option to give.
    """
    names = {share: name for name, share in kept.items()}
    if efficiency not in names:
        shares = ", ".join(f"{share:g}" for share in names)
        raise InputError(f"--efficiency {efficiency:g}: choose one of {shares}, or give {instead}")
    return names[efficiency]
