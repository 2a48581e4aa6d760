"""Edge metrics of the field, per event, by acorn's definitions.

Shapes: E edges of one whole event.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.errors import InputError

RATIOS = ("efficiency", "target_purity", "total_purity", "purity", "auc")
KEPT = {"98": 0.98, "99": 0.99, "99.5": 0.995, "99.8": 0.998}  # shares of the target edges


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
    """Computes one event's metrics in float64: logits [E], y [E] bool, weights [E].

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


def score_cuts(scores: Tensor, is_target: Tensor) -> dict[str, float]:
    """Returns the highest score above or at which the shares KEPT of the target edges score, by
    name: scores, is_target [E]; nothing without target edges.
    """
    of_target = scores[is_target].numpy()
    if not len(of_target):
        return {}
    return {
        name: float(np.quantile(of_target, 1 - kept, method="inverted_cdf"))
        for name, kept in KEPT.items()
    }


@dataclass(frozen=True)
class EdgeSummary:
    """Metrics of several events: the mean of each ratio over the events that have it, None if none
    has; numbers of edges, which the ratios' statistical errors rest on, over all of them.

    events_skipped counts the events that at least one mean leaves out, events_without_auc those
    that the mean AUC does.
    """

    efficiency: float | None
    target_purity: float | None
    total_purity: float | None
    purity: float | None
    auc: float | None
    events_skipped: int
    events_without_auc: int
    n_target: int
    n_predicted: int
    n_found: int
    n_true_predicted: int


def summarise_edges(events: Sequence[EdgeMetrics]) -> EdgeSummary:
    """Makes one of the metrics of several events."""
    ratios = {name: [getattr(event, name) for event in events] for name in RATIOS}
    return EdgeSummary(
        **{name: _mean(column) for name, column in ratios.items()},
        events_skipped=sum(None in row for row in zip(*ratios.values(), strict=True)),
        events_without_auc=ratios["auc"].count(None),
        n_target=sum(event.n_target for event in events),
        n_predicted=sum(event.n_predicted for event in events),
        n_found=sum(event.n_found for event in events),
        n_true_predicted=sum(event.n_true_predicted for event in events),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _auc(score: NDArray[np.float64], target: NDArray[np.bool_]) -> float | None:
    """Returns Mann-Whitney's chance that a target edge scores above another; ties count half."""
    positives, negatives = score[target], score[~target]
    negatives.sort()
    pairs = len(positives) * len(negatives)
    if not pairs:
        return None
    below = np.searchsorted(negatives, positives, "left").sum()
    not_above = np.searchsorted(negatives, positives, "right").sum()
    return float((below + not_above) / (2 * pairs))
