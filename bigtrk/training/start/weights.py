"""The weights that a training starts from: drawn by its seed, or those of `model.init_from`."""

from pathlib import Path
from shlex import quote
from typing import NamedTuple

from torch import nn

from bigtrk.config import by_key
from bigtrk.errors import InputError
from bigtrk.training.model_files import build_model, load_model, load_weights
from bigtrk.training.settings import Configuration
from bigtrk.training.start.earlier import described_in
from bigtrk.training.start.match import Match, Tensors, match_of

_FEATURES = ("data.node_features", "data.edge_features")
# The settings that change how a model is computed, or where its weights come from, and not what.
_OTHERS = ("model.recompute", "model.precision", "model.init_from", "model.init_partly")


class StartingModel(NamedTuple):
    """The model that a training starts with. told: what of it was not drawn; None if all was."""

    model: nn.Module
    told: str | None


def starting_model(configuration: Configuration) -> StartingModel:
    """Makes the model that a training starts with.

    Raises:
        InputError: `model.init_from` holds no weights, or those of another model, of which
            `model.init_partly` does not allow to take a part; or none fits.
    """
    model, start = build_model(configuration), configuration.model.init_from
    if start is None:
        return StartingModel(model, None)
    found, earlier = _read(start)
    state = model.state_dict()
    match, differ = match_of(found, state), _differences(earlier, configuration)
    _check(configuration, match, differ)
    if earlier is not None:
        _check_features(earlier, configuration)
    model.load_state_dict({**state, **{name: found[name] for name in match.taken}})
    told = f"model.init_from={start}: {match.told}"
    if earlier is None:
        told += "; the events that trained them are not known, so keep those to test on apart"
    elif differ:
        told += f"; set otherwise there: {' '.join(differ)}"
    return StartingModel(model, told)


def _read(start: Path) -> tuple[Tensors, Configuration | None]:
    """Reads weights by name, and the configuration of their model, if it is known."""
    if described_in(start) is None:
        return load_weights(start), None
    stored = load_model(start)
    return stored.model.state_dict(), stored.configuration


def _check(configuration: Configuration, match: Match, differ: list[str]) -> None:
    """Checks that all weights fit, or at least some where that is allowed."""
    model = configuration.model
    if differ and not model.init_partly:
        raise InputError(
            f"model.init_from={model.init_from}: its model is another; set {' '.join(differ)}"
        )
    if not match.taken:
        raise InputError(
            f"model.init_from={model.init_from}: none of its weights has the name and the shape of "
            f"one of this model"
        )
    if not match.is_whole and not model.init_partly:
        raise InputError(
            f"model.init_from={model.init_from}: {match.complaint}; to take the "
            f"{len(match.taken)} tensors that fit, set model.init_partly=true"
        )


def _check_features(earlier: Configuration, configuration: Configuration) -> None:
    """Refuses as many other features, which would be read by weights that mean the earlier ones."""
    theirs, ours = by_key(earlier), by_key(configuration)
    counts = zip(earlier.data.feature_counts, configuration.data.feature_counts, strict=True)
    for key, (before, now) in zip(_FEATURES, counts, strict=True):
        if before == now and theirs[key] != ours[key]:
            raise InputError(
                f"model.init_from={configuration.model.init_from}: its weights read other "
                f"features in these places; set {quote(f'{key}={theirs[key]}')}"
            )


def _differences(earlier: Configuration | None, configuration: Configuration) -> list[str]:
    """Lists, as overrides, the settings that the weights are for and that are others here."""
    if earlier is None:
        return []
    theirs, ours = _what_counts(earlier), _what_counts(configuration)
    return [quote(f"{key}={theirs[key]}") for key in theirs if ours.get(key) != theirs[key]]


def _what_counts(configuration: Configuration) -> dict[str, str]:
    """Returns the settings that a model's weights are for, by key."""
    return {
        key: value
        for key, value in by_key(configuration).items()
        if key in _FEATURES or (key.startswith("model.") and key not in _OTHERS)
    }
