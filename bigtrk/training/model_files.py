"""The model of a run: built from a configuration, loaded back from its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import bigtrk
from bigtrk.config import Settings, Tree, parse
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError, one_line
from bigtrk.graphs.features import SCALES
from bigtrk.models.settings import make_model
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import RUN
from bigtrk.training.checkpoint.manifest import Shape, read_header
from bigtrk.training.data.features import NOTHING_MEASURED, check_measured
from bigtrk.training.named_code import code_named, warn_of_other_code
from bigtrk.training.run_folder import DESCRIPTION, run_of, weights_of
from bigtrk.training.settings import Configuration

STORED_AS = "F32"  # weights, in whatever precision the model computes


class Description(Settings):
    """`config.json`: the description of the model in `model.safetensors`.

    scales: by feature of ours, the constant it was divided by. measured: the scales of others.
    trained_on: the identities of events.
    """

    format: Literal["bigtrk model"]
    configuration: dict[str, Any]
    scales: dict[str, float]
    measured: MeasuredScales = NOTHING_MEASURED
    trained_on: tuple[str, ...]


@dataclass(frozen=True)
class StoredModel:
    """A model read from a run's folder. trained_on: the identities of events. step: that of the
    checkpoint it was read from; None for the model that a run ends with.
    """

    model: nn.Module
    configuration: Configuration
    trained_on: frozenset[str]
    measured: MeasuredScales = NOTHING_MEASURED
    step: int | None = None


def build_model(configuration: Configuration) -> nn.Module:
    """Makes a fresh model; the same weights for the same seed, on every rank and engine."""
    torch.manual_seed(configuration.training.seed)
    pt_head = configuration.training.pt_weight > 0
    return make_model(configuration.model, *configuration.data.feature_counts, pt_head)


def describe(
    configuration: Configuration,
    trained_on: Sequence[str],
    measured: MeasuredScales = NOTHING_MEASURED,
) -> dict[str, Any]:
    """Makes the content of config.json; trained_on: the identities of events."""
    return Description(
        format="bigtrk model",
        configuration=configuration.model_dump(mode="json"),
        scales=_known_scales(configuration),
        measured=measured,
        trained_on=tuple(trained_on),
    ).model_dump(mode="json")


def model_configuration(run: Path) -> Configuration:
    """Reads the configuration of the trained model of a run; errors as of `read_description`."""
    content = read_description(run).configuration
    return _parsed(Configuration, content, run_of(run) / DESCRIPTION)


def read_description(run: Path) -> Description:
    """Reads a run's description of its trained model; raises InputError where it is missing or
    damaged.
    """
    path = run_of(run) / DESCRIPTION
    if not path.exists():
        raise InputError(
            f"{path}: no such file, which a run writes when its training ends; name the folder of "
            f"a run that has"
        )
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != "bigtrk model":
        raise InputError(f"{path}: does not describe a bigtrk model; name the folder of a run")
    return _parsed(Description, content, path)


def load_model(run: Path) -> StoredModel:
    """Loads the trained model of a run, with the weights that it ended with or those of another
    file in its folder that is named; raises InputError where its files are missing, damaged, or do
    not fit each other.
    """
    path, weights = run_of(run) / DESCRIPTION, weights_of(run)
    description = read_description(run)
    configuration = _parsed(Configuration, description.configuration, path)
    check_measured(str(path), configuration.data, description.measured)
    then, here = description.scales, _known_scales(configuration)
    for name in {**then, **here}:
        if then.get(name) != here.get(name):
            raise InputError(
                f"{path}: scales: feature {one_line(repr(name))} was scaled by {then.get(name)}, "
                f"here by {here.get(name)}; train again"
            )
    shapes = {name: tensor.shape for name, tensor in read_header(weights).items()}
    warn_of_other_code(run_of(run), configuration)
    check_shapes(configuration, str(path), shapes, str(weights))
    model = build_model(configuration)
    model.load_state_dict(load_weights(weights))
    return StoredModel(
        model, configuration, frozenset(description.trained_on), description.measured
    )


def load_weights(file: Path) -> dict[str, Tensor]:
    """Loads weights by name; raises InputError where the file is damaged or of other types."""
    for name, tensor in read_header(file).items():
        if tensor.dtype != STORED_AS:
            raise InputError(
                f"{file}: {one_line(name)} is {tensor.dtype}, not {STORED_AS}; train again"
            )
    return load_file(file)


def check_shapes(
    configuration: Configuration, source: str, stored: Mapping[str, Shape], file: str
) -> None:
    """Checks that the weights `stored` in `file`, by name, are those of the model that
    `configuration` (of `source`) describes, without taking memory for a model of ours; raises
    InputError where one is missing, unknown or of another shape.
    """
    try:
        with torch.device("meta"):
            model = build_model(configuration)
    except InputError:
        if not code_named(configuration):
            raise
        model = build_model(configuration)  # a class of the user's own that reads values
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in (*expected, *stored):
        if stored.get(name) != expected.get(name):
            held, asked = (
                list(shapes[name]) if name in shapes else "nothing" for shapes in (stored, expected)
            )
            raise InputError(
                f"{file}: holds {held} of {one_line(name)}, where {source} asks for {asked} "
                f"(model, data.node_features, data.edge_features, training.pt_weight); restore the "
                f"two files that belong together"
            )


def _known_scales(configuration: Configuration) -> dict[str, float]:
    """Returns the constants that normalise the features of a configuration, by name."""
    data = configuration.data
    names = (*data.node_features, *data.edge_features)
    return {name: SCALES[name] for name in names if name in SCALES}


def _parsed(kind: type[Tree], content: Any, path: Path) -> Tree:
    try:
        return parse(kind, content, str(path))
    except InputError as error:
        raise InputError(
            f"{error} (read as bigtrk {bigtrk.__version__} writes it; {RUN} beside it names the "
            f"version that did)"
        ) from None
