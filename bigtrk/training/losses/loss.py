"""The edge loss: weighted binary cross entropy, divided by global counts; and the loss of pT.

Shapes: E edges of one sector. Positives and negatives follow acorn: a true edge of positive weight
is a positive, a false edge of any weight but 0 and every edge of negative weight is a negative, the
rest is masked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from bigtrk.training.data.upload import uploaded

_TERMS = 1024  # of a sum that no threads share


@dataclass(frozen=True)
class EdgeTruth:
    """The truth of edges: label [E] float (1 positive, 0 negative), weight [E] float (0 where
    masked or not owned), counts [2] int64 (positives and negatives owned by this sector).

    Only for losses of users' own: target [E] bool, pt [E] float (GeV; NaN where not known).
    """

    label: Tensor
    weight: Tensor
    counts: Tensor
    target: Tensor | None = None
    pt: Tensor | None = None

    def take(self, rows: Tensor) -> "EdgeTruth":
        """Takes the truth of some edges, with the counts of all: rows [e] int64."""
        return self._each(lambda column: column[rows])

    def to(self, device: torch.device) -> "EdgeTruth":
        """Moves all but the counts to a device."""
        return self._each(lambda column: uploaded(column, device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "EdgeTruth":
        columns = {"label": self.label, "weight": self.weight, "target": self.target, "pt": self.pt}
        known = {name: column for name, column in columns.items() if column is not None}
        return replace(self, **{name: change(column) for name, column in known.items()})


def edge_truth(y: Tensor, weights: Tensor, owns_edge: Tensor) -> EdgeTruth:
    """Returns the truth for the loss: y [E] bool, weights [E] float, owns_edge [E] bool."""
    positive = y & (weights > 0) & owns_edge
    negative = ((~y & (weights != 0)) | (weights < 0)) & owns_edge
    return EdgeTruth(
        label=positive.to(weights.dtype),
        weight=torch.where(positive | negative, weights.abs(), 0),
        counts=torch.stack([positive.count_nonzero(), negative.count_nonzero()]),
    )


def edge_scale(
    truth: EdgeTruth, counts: Tensor, balance: Literal["proportional", "equal"]
) -> Tensor:
    """Returns each edge's factor of cross entropy, [E]; `counts` [2]: all positives, negatives.

    `proportional` divides by their sum, `equal` positives and negatives each by their own count.
    """
    if balance == "proportional":
        return truth.weight / counts.sum().clamp(min=1)
    positives, negatives = counts.clamp(min=1)
    return truth.weight / torch.where(truth.label > 0, positives, negatives)


def edge_loss(logits: Tensor, label: Tensor, scale: Tensor) -> Tensor:
    """Sums the scaled cross entropies: [E] each -> scalar."""
    each = binary_cross_entropy_with_logits(
        logits, label.to(logits.dtype), weight=scale.to(logits.dtype), reduction="none"
    )
    return summed(each)


def summed(each: Tensor) -> Tensor:
    """Sums terms [E] in an order that their number fixes: -> scalar. torch's own order of long sums
    depends on the number of threads.
    """
    while len(each) > _TERMS:
        n_whole = len(each) - len(each) % _TERMS
        rows, rest = each[:n_whole].reshape(-1, _TERMS), each[n_whole:]
        each = torch.cat([rows.sum(1), rest.sum(0, keepdim=True)])
    return each.sum()


@dataclass(frozen=True)
class PtTruth:
    """The truth of pT: log_pt [E] float32 (pT in GeV; 0 where not known), known [E] bool (and
    owned), count: the number of these.

    These are all true edges whose particle's pT is known, in the target or not: particles outside
    the target are told by how soft they are.
    """

    log_pt: Tensor
    known: Tensor
    count: int


def pt_truth(log_pt: Tensor, owns_edge: Tensor, device: torch.device) -> PtTruth:
    """Makes the truth of log_pt [E], NaN where not known, and owns_edge [E] bool."""
    known = owns_edge & ~log_pt.isnan()
    return PtTruth(
        log_pt=uploaded(torch.where(known, log_pt, 0), device),
        known=uploaded(known, device),
        count=int(known.sum()),
    )


def pt_loss(log_pt: Tensor, truth: PtTruth, count: Tensor) -> Tensor:
    """Sums over the edges known, divided by the global `count`, if any: log_pt [E] -> scalar.

    It is the smooth L1 loss: quadratic below an error of 1 (a factor e in pT), then linear, as
    secondary and low-pT particles have long tails that should not dominate the gradient.
    """
    error = smooth_l1_loss(log_pt, truth.log_pt.to(log_pt.dtype), reduction="none")
    scale = truth.known / count.to(error).clamp(min=1)
    return summed(error * scale)
