"""The start of a run: new, resumed, or with the weights of another."""

from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from torch import nn

from bigtrk.config import by_key
from bigtrk.console import say, warn_once
from bigtrk.errors import InputError, reason
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.proof.prove import check_on_all_ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.training.checkpoint.resume import recorded_scales
from bigtrk.training.data.event_source import Events
from bigtrk.training.data.features import measure_scales
from bigtrk.training.model_files import (
    Description,
    build_model,
    describe,
    load_model,
    load_weights,
    read_description,
)
from bigtrk.training.run_folder import DESCRIPTION
from bigtrk.training.settings import Configuration

_FILE = ".safetensors"


def _described_in(start: Path) -> Path | None:
    """Returns the folder that says what the weights at `start` are: the run itself, or the one that
    a file of weights lies in; None for a file of nothing but weights.

    Raises:
        InputError: there is no such file, or it is none of weights.
    """
    if start.suffix != _FILE:
        if start.is_file():
            raise InputError(
                f"{start}: is no {_FILE} file of weights; name a run, such as 'bigtrk import-model "
                f"acorn' makes of a checkpoint of acorn's"
            )
        return start
    if (start.parent / DESCRIPTION).exists():
        return start.parent
    if not start.exists():
        raise InputError(f"{start}: no such file; name a run, or a {_FILE} file of weights")
    return None


def _description(configuration: Configuration) -> Description | None:
    """Reads the description of the weights that a training starts from, if there are any."""
    start = configuration.model.init_from
    folder = _described_in(start) if start else None
    return read_description(folder) if folder else None


def earlier_events(configuration: Configuration) -> tuple[str, ...]:
    """Reads the identities of the events that trained the weights a training starts from; none for
    a file of nothing but weights.

    Raises:
        InputError: the description of the weights is missing or damaged.
    """
    try:
        described = _description(configuration)
    except InputError as error:
        raise InputError(
            f"model.init_from={configuration.model.init_from}: the events that trained its "
            f"weights, which are to be left out of evaluations, cannot be told ({error}); have it "
            f"there until this run has ended"
        ) from None
    return described.trained_on if described else ()


def earlier_scales(configuration: Configuration) -> MeasuredScales | None:
    """Reads the measured scales that the weights a training starts from were trained with; None
    where none are known.

    Raises:
        InputError: the description of the weights is missing or damaged.
    """
    described = _description(configuration)
    return described.measured if described else None


_FEATURES = ("data.node_features", "data.edge_features")
# The settings that change how a model is computed, or where its weights come from, and not what.
_OTHERS = ("model.recompute", "model.precision", "model.init_from")


class StartingModel(NamedTuple):
    """The model that a training starts with. told: the weights that were not drawn, if any."""

    model: nn.Module
    told: str | None


def starting_model(configuration: Configuration) -> StartingModel:
    """Makes the model that a training starts with.

    Raises:
        InputError: `model.init_from` holds no weights, or those of another model.
    """
    model, start = build_model(configuration), configuration.model.init_from
    if start is None:
        return StartingModel(model, None)
    where = f"model.init_from={start}"
    if _described_in(start) is None:
        weights, known = load_weights(start), False
    else:
        stored = load_model(start)
        weights, known = stored.model.state_dict(), True
        if differ := _differences(stored.configuration, configuration):
            raise InputError(f"{where}: its model is another; set {' '.join(differ)}")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InputError(f"{where}: its weights are of another model ({reason(error)})") from None
    told = f"{where}: {len(weights)} tensors taken"
    if not known:
        told += "; the events that trained them are not known, so keep those to test on apart"
    return StartingModel(model, told)


def _differences(earlier: Configuration, configuration: Configuration) -> list[str]:
    """Lists, as overrides, the settings that the weights are for and that are others here."""
    theirs, ours = by_key(earlier), by_key(configuration)
    return [
        quote(f"{key}={value}")
        for key, value in theirs.items()
        if (key in _FEATURES or (key.startswith("model.") and key not in _OTHERS))
        and ours.get(key) != value
    ]


def first_model(configuration: Configuration, ranks: Ranks, resume: Path | None) -> nn.Module:
    """Makes the model on the device of `ranks`; one to resume gets its weights later. Collective.

    Raises:
        InputError: there are no weights to start from, or the model does not keep its contract.
    """
    if resume:
        model = together(build_model, configuration)
    else:
        model, told = together(starting_model, configuration)
        if told and ranks.is_first:
            say(told)
    model = model.to(ranks.device)
    check_on_all_ranks(model, *configuration.data.feature_counts, configuration.model)
    return model


def first_scales(
    configuration: Configuration, ranks: Ranks, events: Events, resume: Path | None
) -> MeasuredScales:
    """Measures the scales of features that have none of their own, once in a run; weights that
    were trained before go on with theirs. Collective.

    Raises:
        InputError: an event, a record or a description cannot be read.
    """
    if resume:
        return on_first_rank(recorded_scales, resume, configuration)
    known = on_first_rank(earlier_scales, configuration)
    return known or measure_scales(configuration.data, events.train, ranks)


def described_model(
    configuration: Configuration, events: Events, measured: MeasuredScales
) -> dict[str, Any]:
    """Describes the model that the training will have made, with all events that trained it: also
    those that trained the weights it starts from. Warns where events to validate on are among
    these.

    Raises:
        InputError: those are not known.
    """
    earlier = earlier_events(configuration)
    seen = sum(source.origin in set(earlier) for source in events.validation)
    if seen:
        warn_once(
            "model.init_from",
            f"{seen} of the {len(events.validation)} events to validate on trained the weights of "
            f"model.init_from, so that the validation flatters the model; set data.validation "
            f"to others",
        )
    trained_on = dict.fromkeys((*earlier, *(source.origin for source in events.train)))
    return describe(configuration, list(trained_on), measured)
