"""The model of a run: made, started from other weights, described in a file, and loaded again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import bigtrk
from bigtrk.config import Settings, Tree, flat, parse
from bigtrk.console import say, warn_once
from bigtrk.disk.files import read_json
from bigtrk.errors import InputError, one_line, reason
from bigtrk.graphs.features import SCALES
from bigtrk.models.settings import make_model
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.proof.prove import check_on_all_ranks
from bigtrk.records.pipeline import check_is_run
from bigtrk.records.record import Place
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import RUN, read_run_record
from bigtrk.training.checkpoint.manifest import Shape, read_header
from bigtrk.training.data.batch import NOTHING_MEASURED
from bigtrk.training.data.event_source import Events
from bigtrk.training.data.features import check_measured, measure_scales
from bigtrk.training.run_folder import AVERAGED, DESCRIPTION, WEIGHTS, run_of, weights_of
from bigtrk.training.settings import Configuration, code_named, warn_of_other_code

STORED_AS = "F32"  # the dtype of stored weights, whatever precision the model computes in


class Description(Settings):
    """The content of `config.json`, which describes `model.safetensors`. scales: constants of
    bigtrk's own features; measured: scales of other features; trained_on: origins of the training
    events. step: the number of steps it was trained for, if known.
    """

    format: Literal["bigtrk model"]
    configuration: dict[str, Any]
    scales: dict[str, float]
    measured: MeasuredScales = NOTHING_MEASURED
    trained_on: tuple[str, ...]
    step: Place | None = None


@dataclass(frozen=True)
class StoredModel:
    """A loaded model. trained_on: origins of the training events. step: steps trained, if known."""

    model: nn.Module
    configuration: Configuration
    trained_on: frozenset[str]
    measured: MeasuredScales = NOTHING_MEASURED
    step: int | None = None


def build_model(configuration: Configuration) -> nn.Module:
    """Makes an untrained model; its weights depend on the seed, not on ranks or engine."""
    torch.manual_seed(configuration.training.seed)
    pt_head = configuration.training.pt_weight > 0
    return make_model(configuration.model, *configuration.data.feature_counts, pt_head)


def describe(
    configuration: Configuration,
    trained_on: Sequence[str],
    measured: MeasuredScales = NOTHING_MEASURED,
) -> dict[str, Any]:
    """Returns the content of config.json. trained_on: the origins of the training events."""
    return Description(
        format="bigtrk model",
        configuration=configuration.model_dump(mode="json"),
        scales=_known_scales(configuration),
        measured=measured,
        trained_on=tuple(trained_on),
    ).model_dump(mode="json")


def model_configuration(run: Path) -> Configuration:
    """Reads the configuration of a run's trained model; raises as `read_description`."""
    content = read_description(run).configuration
    return _parsed(Configuration, content, run_of(run) / DESCRIPTION)


def read_description(run: Path) -> Description:
    """Reads the description of a run's trained model; InputError if it is missing or damaged."""
    path = run_of(run) / DESCRIPTION
    if not path.exists():
        if not weights_of(run).exists():
            check_is_run(run_of(run))
        raise InputError(
            f"{path}: no such file, which a run writes when its training ends; name the folder of "
            f"a run that has ended"
        )
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != "bigtrk model":
        raise InputError(f"{path}: does not describe a bigtrk model; name the folder of a run")
    return _parsed(Description, content, path)


def load_model(run: Path) -> StoredModel:
    """Loads the model of a run or of its weights file; InputError for damaged or unlike files."""
    path, weights = run_of(run) / DESCRIPTION, weights_of(run)
    description = read_description(run)
    configuration = _parsed(Configuration, description.configuration, path)
    check_measured(str(path), configuration.data, description.measured)
    then, here = description.scales, _known_scales(configuration)
    for name in {**then, **here}:
        if then.get(name) != here.get(name):
            raise InputError(
                f"{path}: scales: feature {one_line(repr(name))} had scale {then.get(name)} in "
                f"training, but has scale {here.get(name)} in this bigtrk; train again"
            )
    shapes = {name: tensor.shape for name, tensor in read_header(weights).items()}
    warn_of_other_code(run_of(run), configuration)
    check_shapes(configuration, str(path), shapes, str(weights))
    model = build_model(configuration)
    model.load_state_dict(load_weights(weights))
    trained_on, measured = frozenset(description.trained_on), description.measured
    step = description.step if weights.name in (WEIGHTS, AVERAGED) else None
    return StoredModel(model, configuration, trained_on, measured, step)


def load_weights(file: Path) -> dict[str, Tensor]:
    """Loads weights by name; InputError if the file is damaged or its dtype is not float32."""
    for name, tensor in read_header(file).items():
        if tensor.dtype != STORED_AS:
            raise InputError(
                f"{file}: '{one_line(name)}' is {tensor.dtype}; make it {STORED_AS}, or train again"
            )
    return load_file(file)


def check_shapes(
    configuration: Configuration, source: str, stored: Mapping[str, Shape], file: str
) -> None:
    """Raises InputError unless the weights `stored` in `file` fit the model of `source`."""
    try:
        with torch.device("meta"):
            model = build_model(configuration)
    except InputError:
        if not code_named(configuration):
            raise
        model = build_model(configuration)  # a user's class may read values
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in (*expected, *stored):
        held, asked = stored.get(name), expected.get(name)
        if held != asked:
            here = "is missing" if held is None else f"has shape {list(held)}"
            needs = "has no such weight" if asked is None else f"needs shape {list(asked)}"
            raise InputError(
                f"{file}: does not fit {source}: weight '{one_line(name)}' {here}, but the model "
                f"{needs} (it follows from model, data.node_features, data.edge_features and "
                f"training.pt_weight); restore both from the same run"
            )


def _known_scales(configuration: Configuration) -> dict[str, float]:
    """Returns bigtrk's constant scales for the features of a configuration, by name."""
    data = configuration.data
    names = (*data.node_features, *data.edge_features)
    return {name: SCALES[name] for name in names if name in SCALES}


def _parsed(kind: type[Tree], content: Any, path: Path) -> Tree:
    try:
        return parse(kind, content, str(path))
    except InputError as error:
        raise InputError(
            f"{error} (this is bigtrk {bigtrk.__version__}; use the version that wrote the "
            f"file, named in {RUN} next to it)"
        ) from None


_FILE = ".safetensors"


def _described_in(start: Path) -> Path | None:
    """Returns the run with a description of weights `start`, or None; InputError if missing."""
    if start.suffix != _FILE:
        if start.is_file():
            raise InputError(
                f"{start}: is no {_FILE} file of weights; name one, or a run ('bigtrk import-model "
                f"acorn' makes a run of a checkpoint of acorn)"
            )
        return start
    if (start.parent / DESCRIPTION).exists():
        return start.parent
    if not start.exists():
        raise InputError(f"{start}: no such file; name a run, or a {_FILE} file of weights")
    return None


def earlier_description(configuration: Configuration) -> Description | None:
    """Reads the description of the weights that a training starts from; None without one."""
    start = configuration.model.init_from
    folder = _described_in(start) if start else None
    return read_description(folder) if folder else None


def earlier_events(configuration: Configuration) -> tuple[str, ...]:
    """Returns origins of the events that trained the initial weights; InputError if unreadable."""
    try:
        described = earlier_description(configuration)
    except InputError as error:
        start, why = configuration.model.init_from, str(error).rsplit("; ", 1)[0]
        raise InputError(
            f"model.init_from={start}: evaluations must leave out the events that trained these "
            f"weights, but the list of these events cannot be read ({why}); restore the weights, "
            f"and keep them until this run has ended"
        ) from None
    return described.trained_on if described else ()


_FEATURES = ("data.node_features", "data.edge_features")
# Settings that change how a model is computed or where its weights come from, not the model.
_OTHERS = ("model.recompute", "model.precision", "model.init_from")


def starting_model(configuration: Configuration) -> tuple[nn.Module, str | None]:
    """Makes a new run's model, and a message about its weights; InputError if these do not fit."""
    model, start = build_model(configuration), configuration.model.init_from
    if start is None:
        return model, None
    where = f"model.init_from={start}"
    if _described_in(start) is None:
        weights, known = load_weights(start), False
    else:
        stored = load_model(start)
        weights, known = stored.model.state_dict(), True
        if differ := _differences(stored.configuration, configuration):
            raise InputError(f"{where}: its model has other settings; set {' '.join(differ)}")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        said = f"{where}: its weights do not fit this model ({reason(error)})"
        raise InputError(f"{said}; set model.* as in the run that trained them") from None
    told = f"{where}: starts from its {len(weights)} tensors of weights"
    if not known:
        told += "; it is unknown which events trained them, so test on events that surely did not"
    return model, told


def _differences(earlier: Configuration, configuration: Configuration) -> list[str]:
    """Lists, as overrides, the earlier model's settings that differ from the configuration's."""
    theirs, ours = (flat(one.model_dump(mode="json")) for one in (earlier, configuration))
    return [
        quote(f"{key}={value}")
        for key, value in theirs.items()
        if (key in _FEATURES or (key.startswith("model.") and key not in _OTHERS))
        and ours.get(key) != value
    ]


def first_model(configuration: Configuration, ranks: Ranks, resume: Path | None) -> nn.Module:
    """Makes the model of a run on each rank; InputError for bad weights or model. Collective."""
    if resume:
        model = together(build_model, configuration)
    else:
        model, told = together(starting_model, configuration)
        if told and ranks.is_first:
            say(told)
    model = model.to(ranks.device)
    check_on_all_ranks(model, *configuration.data.feature_counts, configuration.model)
    return model


def recorded_scales(run: Path, configuration: Configuration) -> MeasuredScales:
    """Reads the scales that a run measured; InputError if a feature's scale is missing."""
    measured = read_run_record(run).measured
    check_measured(str(run / RUN), configuration.data, measured)
    return measured


def first_scales(
    configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None
) -> MeasuredScales:
    """Returns the measured scales of a run: recorded if it resumes, those of its initial weights,
    or newly measured. Collective. Raises InputError if an event or a record cannot be read.
    """
    if resume:
        return on_first_rank(recorded_scales, resume, configuration)
    described = on_first_rank(earlier_description, configuration)
    known = described and described.measured
    return known or measure_scales(configuration.data, events.train, ranks)


def described_model(
    configuration: Configuration, events: Events, measured: MeasuredScales
) -> dict[str, Any]:
    """Returns the model's description, with all events that trained it; warns if a validation event
    is among them. Raises InputError as earlier_events.
    """
    earlier = earlier_events(configuration)
    seen = sum(source.origin in set(earlier) for source in events.validation)
    if seen:
        warn_once(
            "model.init_from",
            f"{seen} of the {len(events.validation)} validation events trained the weights of "
            "model.init_from, so the validation looks better than the model is; set "
            "data.validation to other events",
        )
    trained_on = dict.fromkeys((*earlier, *(source.origin for source in events.train)))
    return describe(configuration, list(trained_on), measured)
