"""The weights at the points of a training that its run still knows."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bigtrk.console import complain
from bigtrk.records.run import MeasuredScales
from bigtrk.records.run_folder import RUN
from bigtrk.training.checkpoint.folder import all_good, last_good
from bigtrk.training.checkpoint.resume import recorded_scales
from bigtrk.training.checkpoint.state import stored_weights
from bigtrk.training.evaluation.evaluated_model import evaluated_configuration
from bigtrk.training.model_files import check_shapes, load_model
from bigtrk.training.named_code import warn_of_other_code
from bigtrk.training.run_folder import DESCRIPTION, WEIGHTS
from bigtrk.training.settings import Configuration
from bigtrk.training.start.weights import starting_model


class Point(NamedTuple):
    """Weights by name, what they are called, and the steps that came before; None: not known."""

    name: str
    step: int | None
    weights: Mapping[str, Tensor]


class Training(NamedTuple):
    """A run's configuration, the scales that it measured, and its points in order."""

    configuration: Configuration
    measured: MeasuredScales
    points: list[Point]


def read_training(run: Path, newest: bool) -> Training:
    """Reads the weights that a run begins with, those of the checkpoints that it has kept, and
    those it ended with; with `newest` the last of these alone. Only reads.

    Raises:
        InputError: the run has neither a model nor a good checkpoint, its files are damaged or do
            not fit each other, or the weights it started from are gone.
    """
    configuration = evaluated_configuration(run)
    kept = _kept(run, configuration)
    if (run / WEIGHTS).exists() and (run / DESCRIPTION).exists():
        stored = load_model(run)
        measured, points = stored.measured, _ended(kept, stored.model.state_dict())
    else:
        if (found := last_good(run)).complaint:
            complain(found.complaint)
        warn_of_other_code(run, configuration)
        measured, points = recorded_scales(run, configuration), kept
    if newest:
        return Training(configuration, measured, points[-1:])
    begin = Point("start", 0, starting_model(configuration).model.state_dict())
    return Training(configuration, measured, [begin, *points])


def _kept(run: Path, configuration: Configuration) -> list[Point]:
    """Reads the checkpoints."""
    points = []
    for found in all_good(run):
        check_shapes(configuration, str(run / RUN), found.checkpoint.shapes, str(found.folder))
        step = found.checkpoint.progress.step
        weights = stored_weights(found.folder, found.checkpoint)
        points.append(Point(f"step {step}", step, weights))
    return points


def _ended(kept: list[Point], weights: Mapping[str, Tensor]) -> list[Point]:
    """Puts the weights that a run ended with in the place of the checkpoint that has the same."""
    if kept and all(torch.equal(kept[-1].weights[name], value) for name, value in weights.items()):
        return [*kept[:-1], Point("end", kept[-1].step, weights)]
    return [*kept, Point("end", None, weights)]
