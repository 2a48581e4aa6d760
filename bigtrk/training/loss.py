"""The loss of a sector's E edges: which edges, the term and weight of each, global counts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, smooth_l1_loss

from bigtrk.errors import InputError, RankError
from bigtrk.training.data.batch import Batch, EdgeTruth, PtTruth, Share, run_model
from bigtrk.training.settings import NegativeSettings, TrainingSettings
from bigtrk.user_code import load_function, names_code, users_errors

KEY = "training.loss"
_KIND = "a function that takes edges and returns the loss of each"
_TERMS = 1024  # terms of a sum that torch computes in one thread


def edge_scale(
    truth: EdgeTruth, counts: Tensor, balance: Literal["proportional", "equal"]
) -> Tensor:
    """Returns each edge's factor in the loss, [E]: its weight divided by a count. counts [2]: all
    positives and negatives; their sum divides (`proportional`), or each edge's own (`equal`).
    """
    if balance == "proportional":
        return truth.weight / counts.sum().clamp(min=1)
    positives, negatives = counts.clamp(min=1)
    return truth.weight / torch.where(truth.label > 0, positives, negatives)


class _Summed(torch.autograd.Function):
    """Sums terms [E] -> scalar; the backward pass only expands, where autograd would pad copies."""

    @staticmethod
    def forward(ctx, each: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.size = each.shape
        while len(each) > _TERMS:
            n_rows = len(each) // _TERMS
            sums, n_whole = each.new_empty(n_rows + 1), n_rows * _TERMS
            torch.sum(each[:n_whole].reshape(-1, _TERMS), 1, out=sums[:-1])
            torch.sum(each[n_whole:], 0, keepdim=True, out=sums[-1:])
            each = sums
        return each.sum()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return grad.expand(ctx.size)


def summed(each: Tensor) -> Tensor:
    """Sums terms [E] -> scalar in an order fixed by E; torch's order depends on the threads."""
    return _Summed.apply(each)  # type: ignore[no-any-return]


# Sums a sector's losses of edges: logits, truth, counts [2], scale [E] (edge_scale) -> scalar.
EdgeLoss = Callable[[Tensor, EdgeTruth, Tensor, Tensor], Tensor]


def make_loss(settings: TrainingSettings) -> EdgeLoss:
    """Returns the loss function named by `training.loss`; InputError if it cannot be imported."""
    name = settings.loss
    if name == "bce":
        return lambda logits, truth, _, scale: edge_loss(logits, truth.label, scale)
    if name == "focal":
        return lambda logits, truth, _, scale: _focal(logits, truth, scale, settings.focal_gamma)
    function: LossFunction = load_function(name, KEY, _KIND)

    def own_loss(logits: Tensor, truth: EdgeTruth, counts: Tensor, scale: Tensor) -> Tensor:
        assert truth.target is not None, "a batch knows the target for such a loss"
        assert truth.pt is not None, "and pT"
        label, weight, pt = (x.to(logits.dtype) for x in (truth.label, truth.weight, truth.pt))
        edges = ScoredEdges(logits, label, truth.target, weight, pt, counts.to(logits))
        try:
            each = _loss_of_each(name, function, edges)
        except InputError as error:
            # The loss passed check_loss, so it may fail on this rank's edges only.
            raise RankError(f"rank {dist.get_rank()}: {error}") from error
        return summed(each * scale.to(logits.dtype))

    return own_loss


def edge_loss(logits: Tensor, label: Tensor, scale: Tensor) -> Tensor:
    """Returns the sum of binary cross entropies times scale (a scalar); arguments are [E]."""
    each = binary_cross_entropy_with_logits(
        logits, label.to(logits.dtype), weight=scale.to(logits.dtype), reduction="none"
    )
    return summed(each)


def _focal(logits: Tensor, truth: EdgeTruth, scale: Tensor, gamma: float) -> Tensor:
    """Returns the scaled sum of (1 - p)^gamma (-log p), p the score of the true label (Lin et al.
    2017, equation 4). One log of a sigmoid serves both, so no power of 0 has an infinite gradient.
    """
    wrong = logits * (1 - 2 * truth.label.to(logits.dtype))
    each = (gamma * logsigmoid(wrong)).exp() * -logsigmoid(-wrong)
    return summed(each * scale.to(logits.dtype))


@dataclass(frozen=True)
class ScoredEdges:
    """The edges of a sector as passed to a user's loss function, all floats of one type.

    logits [E]. truth [E]: 1 for edges to be found true, 0 for edges to be found false. target [E]
    bool: true edges of the target's particles. weights [E]: 0 if masked or owned by another sector.
    pt [E]: pT of a true edge's particle in GeV, NaN if there is none or it is not known. counts
    [2]: the numbers of positives and negatives on all ranks, which divide the losses: of this event
    in the step, or, with training.step_loss=per_edge, of all events in the step.
    """

    logits: Tensor
    truth: Tensor
    target: Tensor
    weights: Tensor
    pt: Tensor
    counts: Tensor


LossFunction = Callable[[ScoredEdges], Tensor]


def _loss_of_each(name: str, function: LossFunction, edges: ScoredEdges) -> Tensor:
    """Returns a user's loss of each edge, [E]; InputError if the shape or the type is another."""
    with users_errors(f"{KEY}={name}: fails"):
        made = function(edges)
    if not isinstance(made, Tensor) or made.shape != edges.logits.shape:
        told = f"shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise InputError(
            f"{KEY}={name}: returns {told} for {len(edges.logits)} edges; return one loss per "
            f"edge, neither weighted nor summed (bigtrk does both)"
        )
    if made.dtype != edges.logits.dtype:
        raise InputError(
            f"{KEY}={name}: returns {made.dtype}; return {edges.logits.dtype}, as edges.logits is"
        )
    return made


_EDGES = 400  # random ones, which check a function of the user's own
_SAME = 1e-9  # in float64, relative


def check_loss(name: str, device: torch.device) -> None:
    """Raises InputError unless a user's loss is finite, with a finite gradient, and depends for
    each edge on this edge and the counts only, so that sums over parts add up.
    """
    if not names_code(name):
        return
    function: LossFunction = load_function(name, KEY, _KIND)
    edges = _random_edges(device)
    each, gradient = _loss_of_each(name, function, edges), None
    if each.requires_grad:
        (gradient,) = torch.autograd.grad(each.sum(), edges.logits, allow_unused=True)
    if gradient is None:
        raise InputError(
            f"{KEY}={name}: its result has no gradient for edges.logits, so nothing would be "
            f"learnt; compute it from edges.logits by torch functions"
        )
    for what, values in (("a loss", each.detach()), ("a gradient", gradient)):
        bad = (~values.isfinite()).nonzero()[:, 0].tolist()
        if bad:
            logit, pt = float(edges.logits.detach()[bad[0]]), float(edges.pt[bad[0]])
            raise InputError(
                f"{KEY}={name}: gives {what} of {float(values[bad[0]])} to an edge with logit "
                f"{logit:.3g} and pt {pt:.3g} GeV; keep loss and gradient finite, also where pt "
                f"is NaN (unknown) or the weight is 0"
            )
    # Two halves, one edge and no edges must get the same losses as among all edges.
    order = torch.randperm(_EDGES, generator=torch.Generator().manual_seed(1)).to(device)
    for some in (order[::2], order[1::2], order[:1], order[:0]):
        columns = {key: column[some] for key, column in vars(edges).items() if key != "counts"}
        made = _loss_of_each(name, function, replace(edges, **columns)).detach()
        if not torch.allclose(made, each.detach()[some], rtol=_SAME, atol=_SAME):
            raise InputError(
                f"{KEY}={name}: the loss of an edge depends on other edges, so it would change "
                f"when a graph is cut in sectors; compute it from this edge and edges.counts alone"
            )


def _random_edges(device: torch.device) -> ScoredEdges:
    """Draws random edges of every kind: masked, in the target, of known pT, or not."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        return torch.rand(_EDGES, generator=generator, dtype=torch.float64).to(device)

    is_true, in_target, is_masked, has_pt = (draw() < share for share in (0.5, 0.6, 0.2, 0.7))
    kept = (in_target | ~is_true) & ~is_masked
    return ScoredEdges(
        logits=(20 * draw() - 10).requires_grad_(),
        truth=(is_true & kept).double(),
        target=is_true & in_target,
        weights=torch.where(kept, 0.5 + draw(), 0.0),
        pt=torch.where(is_true & has_pt, 5 * draw(), torch.nan),
        counts=torch.tensor([1000.0, 9000.0], dtype=torch.float64, device=device),
    )


def pt_loss(log_pt: Tensor, truth: PtTruth, count: Tensor) -> Tensor:
    """Returns the smooth L1 loss of log_pt [E], summed over known edges, divided by global `count`.
    It is linear above an error of 1 (a factor e in pT), since low-pT particles have long tails.
    """
    error = smooth_l1_loss(log_pt, truth.log_pt.to(log_pt.dtype), reduction="none")
    scale = truth.known / count.to(error).clamp(min=1)
    return summed(error * scale)


@dataclass(frozen=True)
class Draw:
    """The seed of random draws: the run's seed and the step's number."""

    seed: int
    step: int

    def generator(self, batch: Batch) -> np.random.Generator:
        """Returns the random generator of a batch, the same on any rank."""
        event = batch.event or 0
        return np.random.default_rng((self.seed, self.step, event, batch.sector.part))


@torch.no_grad()
def choose_edges(model: nn.Module, share: Share, negatives: NegativeSettings, draw: Draw) -> Share:
    """Returns the share with only the edges to train, in their order; the false ones are weighted
    up to the weight of all false edges. Every rank runs the model once, even on an empty sector.
    """
    scored = zip(share.batches, run_model(model, share), strict=True)
    return replace(share, batches=[_chosen(*one, negatives, draw) for one in scored])


def _chosen(batch: Batch, scores: Tensor, negatives: NegativeSettings, draw: Draw) -> Batch:
    """Returns the batch with only the edges to train, chosen by their `scores` [E]."""
    truth = batch.truth.take(torch.arange(len(scores), device=scores.device))
    weight, label = truth.weight, truth.label
    positive = (label > 0) & (weight > 0)
    negative = ((label == 0) & (weight > 0)).nonzero()[:, 0]
    each = max(int(positive.sum()), 1)
    by_score = negative[scores[negative].argsort(descending=True, stable=True)]
    hard = by_score[: round(negatives.hard * each)]
    # Drawn by place among the edges, since scores may round differently on other machines.
    others = by_score[len(hard) :].sort().values
    n_easy = min(round(negatives.easy * each), len(others))
    rows = draw.generator(batch).choice(len(others), n_easy, replace=False)
    false = torch.cat([hard, others[torch.from_numpy(rows).to(others.device)]])
    weight = weight.clone()
    weight[false] *= len(negative) / max(len(false), 1)
    chosen = torch.cat([positive.nonzero()[:, 0], false]).sort().values
    kept = chosen.cpu()
    return replace(
        batch,
        edge_features=batch.edge_features[chosen],
        edge_index=batch.edge_index[:, chosen],
        y=batch.y[kept],
        is_target=batch.is_target[kept],
        truth=replace(truth, weight=weight).take(chosen),
    )
