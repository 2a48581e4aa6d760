"""The weights that a training starts from: drawn by its seed, or those of another run."""

from collections.abc import Collection, Sequence
from pathlib import Path
from shlex import quote

from torch import nn

from bigtrk.config import by_key
from bigtrk.console import warn_once
from bigtrk.errors import InputError
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.model_files import build_model, load_model, read_description
from bigtrk.training.settings import Configuration

_FEATURES = ("data.node_features", "data.edge_features")
# The settings that change how a model is computed, and not what.
_COMPUTING = ("model.recompute", "model.precision")


def starting_model(configuration: Configuration) -> nn.Module:
    """Makes the model that a training starts with. Of a head for pT that the earlier run has not,
    the seed draws the weights.

    Raises:
        InputError: the earlier run has no model, or one of other settings or features.
    """
    model, run = build_model(configuration), configuration.training.start_from
    if run is not None:
        stored = load_model(run)
        _check_same(run, stored.configuration, configuration)
        earlier, drawn = stored.model.state_dict(), model.state_dict()
        model.load_state_dict({name: earlier.get(name, drawn[name]) for name in drawn})
    return model


def earlier_events(configuration: Configuration) -> tuple[str, ...]:
    """Reads the identities of the events that trained the weights a training starts from.

    Raises:
        InputError: the earlier run's description is missing or damaged.
    """
    run = configuration.training.start_from
    if run is None:
        return ()
    try:
        return read_description(run).trained_on
    except InputError as error:
        raise InputError(
            f"training.start_from={run}: the events that trained its weights, which are to be left "
            f"out of evaluations, cannot be told ({error}); have the folder there until this run "
            f"has ended"
        ) from None


def warn_of_seen(earlier: Collection[str], validation: Sequence[EventSource]) -> None:
    """Warns where events to validate on are among the `earlier` ones, which trained the weights."""
    seen = sum(source.origin in earlier for source in validation)
    if seen:
        warn_once(
            "training.start_from",
            f"{seen} of the {len(validation)} events to validate on trained the weights of "
            f"training.start_from, so that the validation flatters the model; set data.validation "
            f"to others",
        )


def _check_same(run: Path, earlier: Configuration, configuration: Configuration) -> None:
    theirs, ours = _what_counts(earlier), _what_counts(configuration)
    differ = [quote(f"{key}={theirs[key]}") for key in theirs if ours.get(key) != theirs[key]]
    if differ:
        raise InputError(f"training.start_from={run}: its model is another; set {' '.join(differ)}")


def _what_counts(configuration: Configuration) -> dict[str, str]:
    """Returns the settings that a model's weights are for, by key."""
    return {
        key: value
        for key, value in by_key(configuration).items()
        if key in _FEATURES or (key.startswith("model.") and key not in _COMPUTING)
    }
