"""The losses of edges that `training.loss` chooses among, and functions of users' own.

Shapes: E edges of one sector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import logsigmoid

from bigtrk.errors import InputError, RankError, reason
from bigtrk.training.losses.loss import EdgeTruth, edge_loss, summed
from bigtrk.training.settings import TrainingSettings
from bigtrk.user_code import load_code, no_exit

KEY = "training.loss"


@dataclass(frozen=True)
class ScoredEdges:
    """The edges of a sector as a loss function of the user's own gets them, in one type of float.

    logits [E]. truth [E]: 1 for edges to be found true, 0 for those to be found false. target [E]
    bool: true edges of the target's particles. weights [E]: 0 where masked or owned by another
    sector. pt [E]: that of a true edge's particle in GeV, NaN where there is none or it is not
    known. counts [2]: the positives and negatives that losses are divided by, of all ranks: those
    that the step trains of the event, or with training.step_loss=per_edge of all its events.
    """

    logits: Tensor
    truth: Tensor
    target: Tensor
    weights: Tensor
    pt: Tensor
    counts: Tensor


LossFunction = Callable[[ScoredEdges], Tensor]


class EdgeLoss(Protocol):
    """Sums a sector's losses of edges: logits, scale [E] (edge_scale), counts [2] -> scalar."""

    def __call__(
        self, logits: Tensor, truth: EdgeTruth, counts: Tensor, scale: Tensor
    ) -> Tensor: ...


def make_loss(settings: TrainingSettings) -> EdgeLoss:
    """Returns the loss that `training.loss` names.

    Raises:
        InputError: it is a function that cannot be imported.
    """
    match settings.loss:
        case "bce":
            return _cross_entropy
        case "focal":
            return partial(_focal, settings.focal_gamma)
        case name:
            return partial(_of_function, name, load_function(name))


def load_function(name: str) -> LossFunction:
    """Imports a loss function of the user's own.

    Raises:
        InputError: it cannot be imported, or is no function.
    """
    function: LossFunction = load_code(name, KEY)
    if not callable(function):
        raise InputError(
            f"{KEY}={name}: is a {type(function).__name__}; name a function that takes edges and "
            f"gives the loss of each"
        )
    return function


def _cross_entropy(
    logits: Tensor,
    truth: EdgeTruth,
    counts: Tensor,  # noqa: ARG001  # as of the other losses
    scale: Tensor,
) -> Tensor:
    return edge_loss(logits, truth.label, scale)


def _focal(
    gamma: float,
    logits: Tensor,
    truth: EdgeTruth,
    counts: Tensor,  # noqa: ARG001  # as of the other losses
    scale: Tensor,
) -> Tensor:
    """Sums (1 - p)^gamma (-log p), p the score of what is true (Lin et al. 2017, equation 4).

    Both factors are made of one log of a sigmoid, so no power of 0 has an infinite gradient.
    """
    wrong = logits * (1 - 2 * truth.label.to(logits.dtype))
    each = (gamma * logsigmoid(wrong)).exp() * -logsigmoid(-wrong)
    return summed(each * scale.to(logits.dtype))


def _of_function(
    name: str,
    function: LossFunction,
    logits: Tensor,
    truth: EdgeTruth,
    counts: Tensor,
    scale: Tensor,
) -> Tensor:
    assert truth.target is not None, "a batch knows the target for such a loss"
    assert truth.pt is not None, "and pT"
    edges = ScoredEdges(
        logits,
        truth.label.to(logits.dtype),
        truth.target,
        truth.weight.to(logits.dtype),
        truth.pt.to(logits.dtype),
        counts.to(logits),
    )
    try:
        each = loss_of_each(name, function, edges)
    except InputError as error:
        # It passed its check before the training, so the other ranks' edges may suit it.
        raise RankError(f"rank {dist.get_rank()}: {error}") from error
    return summed(each * scale.to(logits.dtype))


def loss_of_each(name: str, function: LossFunction, edges: ScoredEdges) -> Tensor:
    """Calls a loss function of the user's own: [E].

    Raises:
        InputError: it fails, or gives anything but a number for each edge.
    """
    try:
        with no_exit():
            made = function(edges)
    except Exception as error:
        raise InputError(
            f"{KEY}={name}: fails ({type(error).__name__}: {reason(error)}); mend it"
        ) from error
    if not isinstance(made, Tensor) or made.shape != edges.logits.shape:
        told = f"shape {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise InputError(
            f"{KEY}={name}: gives {told} for {len(edges.logits)} edges; return the loss of each, "
            f"which is then weighted, summed and divided"
        )
    if made.dtype != edges.logits.dtype:
        raise InputError(
            f"{KEY}={name}: gives {made.dtype} for logits of {edges.logits.dtype}; return the same"
        )
    return made
