"""The model of a run: built from a configuration, loaded back from its files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from bigtrk.config import parse
from bigtrk.errors import InputError
from bigtrk.files import read_json
from bigtrk.graphs.features import SCALES
from bigtrk.models.build import Model, make_model
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.settings import Configuration


def build_model(configuration: Configuration) -> Model:
    """A fresh model; the same weights for the same seed, on every rank and engine."""
    torch.manual_seed(configuration.training.seed)
    data, pt_head = configuration.data, configuration.training.pt_weight > 0
    sizes = len(data.node_features), len(data.edge_features)
    return make_model(configuration.model, *sizes, pt_head)


def describe(configuration: Configuration, trained_on: Sequence[str]) -> dict[str, Any]:
    """What config.json says: the configuration, the constants that normalise its features, and the
    identities of the events that were trained on.
    """
    data = configuration.data
    names = [*data.node_features, *data.edge_features]
    return {
        "format": "bigtrk model",
        "configuration": configuration.model_dump(mode="json"),
        "scales": {name: SCALES[name] for name in names},
        "trained_on": list(trained_on),
    }


def model_configuration(run: Path) -> Configuration:
    """The configuration of the trained model of a run folder.

    Raises:
        InputError: the folder holds no finished model, or what it says of it is damaged.
    """
    if not (run / WEIGHTS).exists():
        raise InputError(f"{run}: holds no {WEIGHTS}; a run writes it when its training ends")
    path = run / DESCRIPTION
    return parse(Configuration, _description(path)["configuration"], str(path))


def load_model(run: Path) -> tuple[Model, Configuration]:
    """The trained model of a run folder and its configuration.

    Raises:
        InputError: the folder holds no finished model, or its files do not fit each other.
    """
    configuration = model_configuration(run)
    for name, scale in _description(run / DESCRIPTION)["scales"].items():
        if SCALES.get(name) != scale:
            raise InputError(
                f"{run / DESCRIPTION}: feature {name!r} was scaled by {scale}; train again"
            )
    model = build_model(configuration)
    try:
        model.load_state_dict(load_file(run / WEIGHTS))
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{run / WEIGHTS}: damaged or of another model ({reason})") from None
    return model, configuration


def trained_on(run: Path) -> set[str]:
    """Identities of the events that a run's model was trained on."""
    return set(_description(run / DESCRIPTION)["trained_on"])


def _description(path: Path) -> dict[str, Any]:
    description = read_json(path)
    if not isinstance(description, dict) or description.get("format") != "bigtrk model":
        raise InputError(f"{path}: does not describe a bigtrk model")
    return description
