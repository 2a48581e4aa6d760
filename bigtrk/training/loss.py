"""The edge loss: weighted binary cross entropy, divided by global counts.

Shapes: E edges of one sector. Which edges count, and as what, follows acorn: a true edge of
positive weight is a positive, a false edge of any weight but 0 and every edge of negative weight
is a negative, the rest is masked.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


@dataclass(frozen=True)
class EdgeTruth:
    """label [E] float (1 positive, 0 negative), weight [E] float (0 where masked or not owned),
    counts [2] int64 (positives and negatives owned by this sector).
    """

    label: Tensor
    weight: Tensor
    counts: Tensor


def edge_truth(y: Tensor, weights: Tensor, owns_edge: Tensor) -> EdgeTruth:
    """What the loss expects of each edge: y [E] bool, weights [E] float, owns_edge [E] bool."""
    positive = y & (weights > 0) & owns_edge
    negative = ((~y & (weights != 0)) | (weights < 0)) & owns_edge
    return EdgeTruth(
        label=positive.to(weights.dtype),
        weight=torch.where(positive | negative, weights.abs(), 0),
        counts=torch.stack([positive.sum(), negative.sum()]),
    )


def edge_scale(
    truth: EdgeTruth, counts: Tensor, balance: Literal["proportional", "equal"]
) -> Tensor:
    """Factor of each edge's cross entropy: [E], given global `counts` [2] of positives, negatives.

    `proportional` divides by their sum, `equal` positives and negatives each by their own count.
    """
    if balance == "proportional":
        return truth.weight / counts.sum().clamp(min=1)
    positives, negatives = counts.clamp(min=1)
    return truth.weight / torch.where(truth.label > 0, positives, negatives)


def edge_loss(logits: Tensor, label: Tensor, scale: Tensor) -> Tensor:
    """Sum of scaled cross entropies: [E] each -> scalar."""
    return binary_cross_entropy_with_logits(
        logits, label.to(logits.dtype), weight=scale.to(logits.dtype), reduction="sum"
    )
