"""Features and losses as users write them, and some that break their promises."""

import sys
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from bigtrk.training.loss import ScoredEdges

HERE = __name__
Columns = Mapping[str, Tensor]
NOT_CALLABLE = 3.0


def distance(nodes: Columns) -> Tensor:
    """The distance from the collision [mm]; changes its inputs, which are copies."""
    return nodes["r"].square_().add_(nodes["z"].square_()).sqrt_()


def layer(nodes: Columns) -> Tensor:
    """A column that is the same for all."""
    return torch.full_like(nodes["r"], 7.25)


def length(edges: Columns, sources: Columns, destinations: Columns) -> Tensor:
    """The length of an edge [mm], less a tenth of the mean |z| of its nodes."""
    middle = (sources["z"] + destinations["z"]).abs() / 2
    return (edges["dr"].square() + edges["dz"].square()).sqrt() - 0.1 * middle


def absent(nodes: Columns) -> Tensor:
    return nodes["charge"]


def too_short(nodes: Columns) -> Tensor:
    return nodes["r"][1:]


def whole_numbers(nodes: Columns) -> Tensor:
    return nodes["r"].long()


def not_a_number(nodes: Columns) -> Tensor:
    return torch.where(nodes["z"] == nodes["z"].max(), torch.nan, nodes["r"])


def centred(nodes: Columns) -> Tensor:
    return nodes["r"] - nodes["r"].mean()


def relative(nodes: Columns) -> Tensor:
    """Divides each row by the sum over all rows."""
    coarse = nodes["r"].sign()
    return coarse / coarse.sum()


def neighbours(edges: Columns, sources: Columns, _: Columns) -> Tensor:
    """Counts the edges that start where each edge does."""
    z = sources["z"]
    return edges["dr"] * 0 + (z[:, None] == z).sum(dim=1)


def squared(edges: ScoredEdges) -> Tensor:
    """Squared errors, larger for stiff particles and target edges, and where positives are few."""
    error = (edges.logits.sigmoid() - edges.truth).square()
    share = edges.counts[0] / edges.counts.sum()
    return error * (1 + edges.pt.nan_to_num(0.0)) * (1 + edges.target) / (0.1 + share)


def mean_loss(edges: ScoredEdges) -> Tensor:
    return (edges.logits - edges.truth).square().mean()


def ranking(edges: ScoredEdges) -> Tensor:
    """The margin to the mean logit of negatives."""
    return (1 + edges.logits[edges.truth == 0].mean() - edges.logits).relu()


def constant(edges: ScoredEdges) -> Tensor:
    return edges.weights


def of_pt(edges: ScoredEdges) -> Tensor:
    """Forgets that pT may not be known."""
    return (edges.logits - edges.pt).square()


def of_masked(edges: ScoredEdges) -> Tensor:
    return edges.logits.square() / edges.weights


def rooted(edges: ScoredEdges) -> Tensor:
    """Finite, but not its gradient at 0."""
    return (edges.logits * (edges.weights > 0)).abs().sqrt()


def rounded(edges: ScoredEdges) -> Tensor:
    return edges.logits.half().square()


def failing(edges: ScoredEdges) -> Tensor:
    raise RuntimeError(f"no\nloss of {len(edges.logits)}")


def leaving(_: object) -> Tensor:
    """Ends the program as if all were well; a loss, or a feature of nodes."""
    sys.exit(0)


def failing_alone(edges: ScoredEdges) -> Tensor:
    """Passes the check in float64, and fails in the training of rank 1."""
    if edges.logits.dtype == torch.float32 and dist.get_rank() == 1:
        raise RuntimeError("no loss here")
    return edges.logits.square()
