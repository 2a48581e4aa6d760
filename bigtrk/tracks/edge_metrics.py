"""Metrics of an event's edges by acorn's definitions, and edge counts by score, pT and eta.

Shapes: N hits, E edges of one whole event, B bins.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import Sector
from bigtrk.records.evaluation import EdgeScores
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.tracks.bins import ETA_EDGES, PT_EDGES, Bins, binned_ratio, hit_eta
from bigtrk.tracks.matching import Ids

RATIOS = ("efficiency", "target_purity", "total_purity", "purity", "auc")
COUNTS = ("n_target", "n_predicted", "n_found", "n_true_predicted")
KEPT = {"98": 0.98, "99": 0.99, "99.5": 0.995, "99.8": 0.998}  # shares of the target edges


@dataclass(frozen=True)
class EdgeMetrics:
    """One event's edge metrics; a ratio is None if its denominator is 0.

    Target edges are true edges of positive weight; predicted edges have a score above the cut.
    efficiency: share of target edges that are predicted. target_purity: share of predicted edges
    that are target; total_purity: that are true. purity: share of target edges among predicted
    target and false edges. auc: area under the ROC curve of the score, target edges against all
    others. n_found: number of predicted target edges; n_true_predicted: of predicted true edges.
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
    """Computes one event's metrics in float64: logits [E], y [E] bool, weights [E]. InputError if a
    logit is NaN.
    """
    if logits.isnan().any():
        raise InputError("the model's logits are NaN; lower optimizer.lr and train it again")
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
    """Returns, for each share in KEPT, the highest score cut that keeps this share of the target
    edges: share's name -> score. scores, is_target [E]; {} without target edges.
    """
    of_target = scores[is_target].numpy()
    if not len(of_target):
        return {}
    return {
        name: float(np.quantile(of_target, 1 - kept, method="inverted_cdf"))
        for name, kept in KEPT.items()
    }


def summarise_edges(events: Sequence[EdgeMetrics]) -> MeanEdgeMetrics:
    """Averages each ratio over the events that have it (None if none has), and sums numbers of
    edges over all events, from which the ratios' statistical errors follow.
    """
    ratios = {name: [getattr(event, name) for event in events] for name in RATIOS}
    return MeanEdgeMetrics(
        **{name: _mean(column) for name, column in ratios.items()},
        events_skipped=sum(None in row for row in zip(*ratios.values(), strict=True)),
        events_without_auc=ratios["auc"].count(None),
        **{name: sum(getattr(event, name) for event in events) for name in COUNTS},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _auc(score: NDArray[np.float64], target: NDArray[np.bool_]) -> float | None:
    """Returns the area under the ROC curve: how often a target edge outscores others; ties half."""
    positives, negatives = score[target], score[~target]
    negatives.sort()
    pairs = len(positives) * len(negatives)
    if not pairs:
        return None
    below = np.searchsorted(negatives, positives, "left").sum()
    not_above = np.searchsorted(negatives, positives, "right").sum()
    return float((below + not_above) / (2 * pairs))


KINDS = ("target", "other", "false")
# Even steps of the logit, since good models crowd scores near 0 and 1.
SCORE_LIMITS = (0.0, *(1 / (1 + math.exp(-step / 4)) for step in range(-40, 41)), 1.0)


def score_counts(
    scores: NDArray[np.floating], y: NDArray[np.bool_], is_target: NDArray[np.bool_]
) -> Ids:
    """Counts edges by KINDS and by score in SCORE_LIMITS: scores, y, is_target [E] -> [3, B].

    A bin includes its upper limit, so the bins above a limit hold the edges that pass a cut there.
    """
    bins = len(SCORE_LIMITS) - 1
    place = np.searchsorted(SCORE_LIMITS, scores, side="left") - 1
    place = np.maximum(place, 0)  # a score of 0 has no bin below it
    masks = (is_target, y & ~is_target, ~y)
    return np.stack([np.bincount(place[mask], minlength=bins) for mask in masks])


def edge_scores_record(counts: Sequence[Ids]) -> EdgeScores:
    """Makes a record of the edge counts of several events (at least one), [3, B] each."""
    kinds = np.sum(counts, axis=0).tolist()
    return EdgeScores(limits=SCORE_LIMITS, **dict(zip(KINDS, map(tuple, kinds), strict=True)))


def edge_bins(event: Sector, scores: Tensor, weights: Tensor, edge_cut: float) -> Bins:
    """Bins the efficiency and purity (see `EdgeMetrics`) of a whole event with truth: scores [E],
    weights [E] of the target.

    efficiency_by_pt, efficiency_by_eta: by a target edge's particle; absent if particles are
    unknown. purity_by_eta: by the mean eta of an edge's two hits; absent if that is unknown.
    """
    assert event.y is not None
    true = event.y.numpy()
    target = true & (weights.numpy() > 0)
    predicted = scores.numpy() > edge_cut
    counted = predicted & (target | ~true)
    bins: Bins = {}
    of_hits = hit_eta(event)
    if of_hits is not None:
        mean = of_hits[event.edge_index.numpy()[:, counted]].mean(axis=0)
        bins["purity_by_eta"] = binned_ratio(mean, target[counted], ETA_EDGES)
    if event.particle_id is not None and event.particles is not None:
        ends = event.edge_index[1][torch.from_numpy(target)]
        row = event.particles.rows_of(event.particle_id[ends]).numpy()
        found = predicted[target]
        # Row -1, of particles that the table lacks, selects the NaN.
        known = (event.particles.pt, event.particles.eta)
        pt, eta = (np.append(column.double().numpy(), np.nan)[row] for column in known)
        bins["efficiency_by_pt"] = binned_ratio(pt, found, PT_EDGES)
        bins["efficiency_by_eta"] = binned_ratio(eta, found, ETA_EDGES)
    return bins
