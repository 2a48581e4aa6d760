"""Norms of gradients and weights over a run, by part of the model."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bigtrk.records.metrics import NormsRecord
from bigtrk.records.run_folder import Run, labels
from bigtrk.reports.elements import figures
from bigtrk.reports.elements.layout import Table


@dataclass(frozen=True)
class GroupNorms:
    """Norms over the steps that recorded them: the gradient's median and largest norm, the step of
    the latter, the weights' first and last norm.
    """

    median: float | None
    largest: float | None
    at_step: int | None
    first: float | None
    last: float | None


def norms(run: Run) -> dict[str, GroupNorms]:
    """Returns norms by group, in the model's order; empty where no step recorded any."""
    known = [(step.step, step.norms) for step in run.steps if step.norms]
    groups = list(known[-1][1].weight) if known else []
    return {group: _of_group(group, known) for group in groups}


def total(of_groups: dict[str, float | None]) -> float | None:
    """Returns the norm of all groups together; None if one is not known."""
    squares = [None if x is None else x * x for x in of_groups.values()]
    return None if not squares or None in squares else math.sqrt(sum(filter(None, squares)))


def norms_tables(runs: Sequence[Run]) -> list[Table]:
    """Makes a table with a row per run and group; none where no run recorded any."""
    rows = tuple(
        (name, group, *_cells(found))
        for name, run in zip(labels(runs), runs, strict=True)
        for group, found in norms(run).items()
    )
    if not rows:
        return []
    columns = ("run", "part", "gradient median", "largest", "at step", "weights first", "last")
    note = (
        "Euclidean norms: of gradients before clipping, of weights before the update, at every "
        "training.norms_every-th step."
    )
    return [Table("Norms", columns, rows, (note,), text_columns=2)]


def norms_entry(run: Run) -> dict[str, Any]:
    """Returns `norms` for the JSON summary."""
    return {group: asdict(found) for group, found in norms(run).items()}


def _of_group(group: str, known: Sequence[tuple[int, NormsRecord]]) -> GroupNorms:
    gradients = [(value, step) for step, n in known if (value := n.gradient.get(group)) is not None]
    weights = [value for _, n in known if (value := n.weight.get(group)) is not None]
    if not gradients or not weights:
        return GroupNorms(None, None, None, None, None)
    largest, step = max(gradients)
    middle = median(value for value, _ in gradients)
    return GroupNorms(middle, largest, step, weights[0], weights[-1])


def _cells(found: GroupNorms) -> tuple[str, ...]:
    return (
        figures.norm(found.median),
        figures.norm(found.largest),
        figures.count(found.at_step),
        figures.norm(found.first),
        figures.norm(found.last),
    )
