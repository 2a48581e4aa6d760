"""The start of a run: new, resumed, or with the weights of another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from torch import Tensor, nn

from bigtrk.config import by_key
from bigtrk.console import say, warn_once
from bigtrk.errors import InputError, one_line
from bigtrk.parallel.collectives import on_first_rank, together
from bigtrk.parallel.ranks import Ranks
from bigtrk.proof.prove import check_on_all_ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.training.checkpoint.resume import recorded_scales
from bigtrk.training.data.event_source import Events
from bigtrk.training.data.features import lacking_scales, measure_scales
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

_MOST_NAMED = 100  # tensors of a message: a file may have any number of them
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Match:
    """The names of tensors: `taken` from elsewhere; of the model's others those that are not there
    (`lacking`) or of another shape there (`reshaped`, with both shapes); and those there that the
    model has not (`unknown`).
    """

    taken: list[str]
    lacking: list[str]
    reshaped: list[str]
    unknown: list[str]

    @property
    def told(self) -> str:
        """Counts what was taken, by part of the model, and lists what was left."""
        parts = Counter(name.split(".")[0] for name in self.taken)
        counts = ", ".join(f"{part} {n}" for part, n in parts.items())
        drawn = [*self.lacking, *self.reshaped]
        said = f"{len(self.taken)} of {len(self.taken) + len(drawn)} tensors taken ({counts})"
        if drawn:
            said += f"; drawn by training.seed: {_listed(drawn)}"
        return said + (f"; not used: {_listed(self.unknown)}" if self.unknown else "")

    @property
    def complaint(self) -> str:
        """The differences that keep the match from being whole; "" for a whole one."""
        kinds = (
            ("lacks", self.lacking),
            ("has another shape of", self.reshaped),
            ("has what the model has not:", self.unknown),
        )
        return "; ".join(f"{what} {_listed(names)}" for what, names in kinds if names)


def _match(found: Tensors, state: Tensors) -> Match:
    """Compares weights from elsewhere with a model's own."""
    common = [name for name in state if name in found]
    return Match(
        taken=[name for name in common if found[name].shape == state[name].shape],
        lacking=[name for name in state if name not in found],
        reshaped=[
            f"{name} ({list(found[name].shape)} instead of {list(state[name].shape)})"
            for name in common
            if found[name].shape != state[name].shape
        ],
        unknown=[name for name in found if name not in state],
    )


def _listed(names: Sequence[str]) -> str:
    shown = [one_line(name) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])


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


def earlier_events(configuration: Configuration) -> tuple[str, ...]:
    """Reads the identities of the events that trained the weights a training starts from; none for
    a file of nothing but weights.

    Raises:
        InputError: the description of the weights is missing or damaged.
    """
    try:
        described = _description(configuration.model.init_from)
    except InputError as error:
        raise InputError(
            f"model.init_from={configuration.model.init_from}: the events that trained its "
            f"weights, which are to be left out of evaluations, cannot be told ({error}); have it "
            f"there until this run has ended"
        ) from None
    return described.trained_on if described else ()


def earlier_scales(configuration: Configuration) -> MeasuredScales:
    """Reads the measured scales that the weights a training starts from were trained with, of those
    features that it has, too.

    Raises:
        InputError: the description of the weights is missing or damaged.
    """
    described = _description(configuration.model.init_from)
    if described is None:
        return MeasuredScales()
    nodes, edges = lacking_scales(configuration.data)
    known = described.measured
    return MeasuredScales(
        nodes={name: known.nodes[name] for name in nodes if name in known.nodes},
        edges={name: known.edges[name] for name in edges if name in known.edges},
    )


def _description(start: Path | None) -> Description | None:
    folder = _described_in(start) if start else None
    return read_description(folder) if folder else None


_FEATURES = ("data.node_features", "data.edge_features")
# The settings that change how a model is computed, or where its weights come from, and not what.
_OTHERS = ("model.recompute", "model.precision", "model.init_from", "model.init_partly")


class StartingModel(NamedTuple):
    """The model that a training starts with. told: the weights that were not drawn, if any."""

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
    state, earlier, differ = model.state_dict(), None, list[str]()
    if _described_in(start) is None:
        found: Tensors = load_weights(start)
    else:
        stored = load_model(start)
        found, earlier = stored.model.state_dict(), stored.configuration
        differ = _differences(earlier, configuration)
    match = _match(found, state)
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


def _check(configuration: Configuration, match: Match, differ: list[str]) -> None:
    """Checks that all weights fit, or at least some where that is allowed."""
    model = configuration.model
    partly, where = model.init_partly, f"model.init_from={model.init_from}"
    if differ and not partly:
        raise InputError(f"{where}: its model is another; set {' '.join(differ)}")
    if not match.taken:
        raise InputError(
            f"{where}: none of its weights has the name and the shape of one of this model"
        )
    if match.complaint and not partly:
        raise InputError(
            f"{where}: {match.complaint}; to take the {len(match.taken)} tensors that fit, set "
            f"model.init_partly=true"
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
    nodes, edges = lacking_scales(configuration.data)
    if known.nodes.keys() >= set(nodes) and known.edges.keys() >= set(edges):
        return known
    measured = measure_scales(configuration.data, events.train, ranks)
    return MeasuredScales(
        nodes={**measured.nodes, **known.nodes}, edges={**measured.edges, **known.edges}
    )


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
