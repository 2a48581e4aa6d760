"""The model that is evaluated: a run's last one, or until it ends its newest good checkpoint's."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from bigtrk.console import complain
from bigtrk.errors import InputError
from bigtrk.parallel.collectives import on_first_rank
from bigtrk.parallel.engines.engine import share_weights
from bigtrk.parallel.ranks import Ranks
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import RUN
from bigtrk.training.checkpoint.folder import Found, read_newest
from bigtrk.training.checkpoint.resume import recorded_scales, resumed_configuration
from bigtrk.training.checkpoint.state import stored_weights
from bigtrk.training.data.event_source import EventSource, split_validation
from bigtrk.training.data.events import Events
from bigtrk.training.model_files import (
    StoredModel,
    build_model,
    check_shapes,
    load_model,
    model_configuration,
)
from bigtrk.training.named_code import warn_of_other_code
from bigtrk.training.run_folder import CHECKPOINTS, DESCRIPTION, WEIGHTS, run_of
from bigtrk.training.settings import Configuration
from bigtrk.training.start.earlier import earlier_events


@dataclass(frozen=True)
class _Unfinished:
    """The state of a run without its last model, as all ranks know it."""

    configuration: Configuration
    trained_on: frozenset[str]
    measured: MeasuredScales
    step: int


def evaluated_configuration(run: Path) -> Configuration:
    """Reads the configuration of the model that `load_evaluated` would give.

    run: its folder, or a file of weights there (best.safetensors, averaged.safetensors).

    Raises:
        InputError: the folder holds neither a model nor checkpoints, or what it says is damaged.
    """
    if _is_finished(run) or run_of(run) != run:
        return model_configuration(run)
    if not (run / CHECKPOINTS).is_dir():
        raise InputError(
            f"{run}: holds no {WEIGHTS} with {DESCRIPTION}, which a run writes when its training "
            f"ends, and no {CHECKPOINTS}; name a run that has got so far"
        )
    return resumed_configuration(run, [])


def load_evaluated(run: Path, ranks: Ranks) -> StoredModel:
    """Loads the model that a run ended with, the weights of another file that is named, or, before
    the end, those of the newest good checkpoint, on the device of `ranks`. Only reads: the run
    may go on meanwhile. Collective.

    Raises:
        InputError: there is neither, files are damaged or do not fit each other, or the events that
            the checkpoint was trained on cannot be told.
    """
    if on_first_rank(lambda: _is_finished(run) or run_of(run) != run):
        stored = load_model(run)
        stored.model.to(ranks.device)
        return stored
    weights: dict[str, Tensor] = {}
    known = on_first_rank(lambda: _read_unfinished(run, weights))
    model = build_model(known.configuration)
    if ranks.is_first:
        model.load_state_dict(weights)
    model.to(ranks.device)
    share_weights(model)
    return StoredModel(model, known.configuration, known.trained_on, known.measured, known.step)


def _is_finished(run: Path) -> bool:
    return (run / WEIGHTS).exists() and (run / DESCRIPTION).exists()


def _read_unfinished(run: Path, weights: dict[str, Tensor]) -> _Unfinished:
    """Reads the newest good checkpoint, and its weights into `weights`."""
    configuration = evaluated_configuration(run)
    warn_of_other_code(run, configuration)

    def read(found: Found) -> Found:
        shapes = found.checkpoint.shapes
        check_shapes(configuration, str(run / RUN), shapes, str(found.folder))
        weights.update(stored_weights(found.folder, found.checkpoint))
        return found

    found = read_newest(run, read)
    own = (source.origin for source in _training_events(run, configuration, found))
    trained_on = frozenset((*own, *earlier_events(configuration)))
    if found.complaint:
        complain(found.complaint)
    complain(
        f"{run}: has not ended; evaluating its checkpoint {found.folder.name}, written by "
        f"{found.checkpoint.engine} on {len(found.checkpoint.shards)} rank(s)"
    )
    measured = recorded_scales(run, configuration)
    return _Unfinished(configuration, trained_on, measured, found.checkpoint.progress.step)


def _training_events(run: Path, configuration: Configuration, found: Found) -> list[EventSource]:
    """Finds the events that a checkpoint was trained on, which it knows a digest of."""
    data = configuration.data
    remedy = (
        "so that the events it trains on cannot be left out; evaluate in the folder where it was "
        "started, with its data as they were, or let it end"
    )
    try:
        train, held = split_validation(data.train, data.validation, data.events)
    except InputError as error:
        raise InputError(f"{run}: has not ended, and {error}, {remedy}") from None
    if Events(train, held).training_digest != found.checkpoint.data:
        raise InputError(
            f"{run}: was trained on other events than its data folders hold now, {remedy}"
        )
    return train
