"""Edge metrics of the field, per event, by acorn's definitions.

Shapes: E edges of one whole event.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from bigtrk.errors import InputError

RATIOS = ("efficiency", "target_purity", "total_purity", "purity", "auc")
COUNTS = ("n_target", "n_predicted", "n_found", "n_true_predicted")


@dataclass(frozen=True)
class EdgeMetrics:
    """One event's metrics; a ratio over nothing is None.

    Target edges are true edges of positive weight, predicted edges those whose score is above the
    cut. efficiency: predicted among target edges. target_purity: target among predicted edges.
    total_purity: true among predicted. purity: target among predicted edges that are target or
    fake. auc: area under the ROC curve of the score, target edges against all others.
    n_found: target among predicted edges. n_true_predicted: true among predicted edges.
    """

    efficiency: float | None
    target_purity: float | None
    total_purity: float | None
    purity: float | None
    auc: float | None
    n_edges: int
    n_target: int
    n_predicted: int
    n_found: int
    n_true_predicted: int


def edge_metrics(logits: Tensor, y: Tensor, weights: Tensor, edge_cut: float = 0.5) -> EdgeMetrics:
    """Metrics of one event, computed in float64: logits [E], y [E] bool, weights [E].

    Raises:
        InputError: a logit is NaN.
    """
    if logits.isnan().any():
        raise InputError("the model's logits are NaN: its training diverged; lower optimizer.lr")
    score = torch.sigmoid(logits.detach().cpu().double()).numpy()
    true = y.cpu().numpy()
    target = true & (weights.detach().cpu().numpy() > 0)
    predicted = score > edge_cut
    n_target, n_predicted = int(target.sum()), int(predicted.sum())
    found = int((target & predicted).sum())
    true_found = int((true & predicted).sum())
    return EdgeMetrics(
        efficiency=_ratio(found, n_target),
        target_purity=_ratio(found, n_predicted),
        total_purity=_ratio(true_found, n_predicted),
        purity=_ratio(found, n_predicted - (true_found - found)),
        auc=_auc(score, target),
        n_edges=len(score),
        n_target=n_target,
        n_predicted=n_predicted,
        n_found=found,
        n_true_predicted=true_found,
    )


def mean_over_events(events: Sequence[EdgeMetrics]) -> dict[str, float | None]:
    """Mean of each ratio over the events that have it, None if none has.

    `events_skipped` counts the events that at least one mean leaves out, `events_without_auc` those
    that the mean AUC does.
    """
    columns = {name: [getattr(event, name) for event in events] for name in RATIOS}
    means = {name: _mean(column) for name, column in columns.items()}
    skipped = sum(None in row for row in zip(*columns.values(), strict=True))
    without_auc = columns["auc"].count(None)
    return {**means, "events_skipped": float(skipped), "events_without_auc": float(without_auc)}


def undefined_note(skipped: float | None, without_auc: float | None) -> str:
    """Which means leave out how many events, in words; "" where none does."""
    if not skipped:
        return ""
    events = "1 event lacks" if skipped == 1 else f"{skipped:.0f} events lack"
    note = f"{events} a metric"
    if without_auc:
        note += f", {without_auc:.0f} AUC: undefined unless target and other edges are there"
    return note


def total_counts(events: Sequence[EdgeMetrics]) -> dict[str, int]:
    """Numbers of edges over all events: what the ratios' statistical errors rest on."""
    return {name: sum(getattr(event, name) for event in events) for name in COUNTS}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _auc(score: NDArray[np.float64], target: NDArray[np.bool_]) -> float | None:
    """Mann-Whitney: the chance that a target edge scores above another; ties count half."""
    positives = int(target.sum())
    negatives = len(target) - positives
    if not positives or not negatives:
        return None
    rank_sum = rankdata(score)[target].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))
