"""The events and scales of the training that made the weights of `model.init_from`, if known."""

from collections.abc import Collection, Sequence
from pathlib import Path

from bigtrk.console import warn_once
from bigtrk.errors import InputError
from bigtrk.records.run import MeasuredScales
from bigtrk.training.data.event_source import EventSource
from bigtrk.training.data.model_features import lacking_scales
from bigtrk.training.model_files import Description, read_description
from bigtrk.training.run_folder import DESCRIPTION
from bigtrk.training.settings import Configuration

_FILE = ".safetensors"


def described_in(start: Path) -> Path | None:
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


def warn_of_seen(earlier: Collection[str], validation: Sequence[EventSource]) -> None:
    """Warns where events to validate on are among the `earlier` ones, which trained the weights."""
    seen = sum(source.origin in earlier for source in validation)
    if seen:
        warn_once(
            "model.init_from",
            f"{seen} of the {len(validation)} events to validate on trained the weights of "
            f"model.init_from, so that the validation flatters the model; set data.validation "
            f"to others",
        )


def _description(start: Path | None) -> Description | None:
    folder = described_in(start) if start else None
    return read_description(folder) if folder else None
