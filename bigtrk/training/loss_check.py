"""Finds out whether a loss function of the user's own is independent of the cut, by running it on
random edges.

Shapes: E edges.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.training.loss import (
    KEY,
    LossFunction,
    ScoredEdges,
    load_function,
    loss_of_each,
)
from bigtrk.user_code import names_code

_EDGES = 400
_SAME = 1e-9  # in float64, relative


def check_loss(name: str, device: torch.device) -> None:
    """Checks the loss that `training.loss` names: a function of the user's own gives each edge a
    loss that depends on this edge and the counts alone, so a sum is that of its parts.

    Raises:
        InputError: it cannot be imported, fails, or gives losses of another shape or type, not
            finite ones, ones that depend on the other edges, or ones without a finite gradient in
            the logits.
    """
    if not names_code(name):
        return
    function, edges = load_function(name), _random_edges(device)
    each = loss_of_each(name, function, edges)
    _check_values(name, edges, each)
    _check_parts(name, function, edges, each.detach())


def _random_edges(device: torch.device) -> ScoredEdges:
    """Draws edges of every kind: masked or not, in the target or not, of known pT or not."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        return torch.rand(_EDGES, generator=generator, dtype=torch.float64)

    is_true, in_target, is_masked, has_pt = (draw() < share for share in (0.5, 0.6, 0.2, 0.7))
    kept = (in_target | ~is_true) & ~is_masked
    edges = ScoredEdges(
        logits=20 * draw() - 10,
        truth=(is_true & kept).double(),
        target=is_true & in_target,
        weights=torch.where(kept, 0.5 + draw(), 0.0),
        pt=torch.where(is_true & has_pt, 5 * draw(), torch.nan),
        counts=torch.tensor([1000.0, 9000.0], dtype=torch.float64),
    )
    on_device = ScoredEdges(**{key: column.to(device) for key, column in vars(edges).items()})
    return replace(on_device, logits=on_device.logits.requires_grad_())


def _check_values(name: str, edges: ScoredEdges, each: Tensor) -> None:
    """Checks that losses, and their gradients in the logits, are finite."""
    gradient = None
    if each.requires_grad:
        (gradient,) = torch.autograd.grad(each.sum(), edges.logits, allow_unused=True)
    if gradient is None:
        raise InputError(
            f"{KEY}={name}: has no gradient in the logits, so nothing would be learnt; compute it "
            f"with torch from edges.logits"
        )
    for what, values in (("a loss", each.detach()), ("a gradient", gradient)):
        bad = (~values.isfinite()).nonzero()[:, 0].tolist()
        if bad:
            logit, pt = float(edges.logits.detach()[bad[0]]), float(edges.pt[bad[0]])
            raise InputError(
                f"{KEY}={name}: gives {what} of {float(values[bad[0]])} to an edge with logit "
                f"{logit:.3g} and pt {pt:.3g} GeV; give a finite one to each edge, also where pt "
                f"is NaN (not known) or weights are 0"
            )


def _check_parts(name: str, function: LossFunction, edges: ScoredEdges, each: Tensor) -> None:
    """Compares the losses of two halves, of one edge and of none with those of all."""
    order = torch.randperm(_EDGES, generator=torch.Generator().manual_seed(1)).to(each.device)
    for some in (order[::2], order[1::2], order[:1], order[:0]):
        made = loss_of_each(name, function, _take(edges, some)).detach()
        if not torch.allclose(made, each[some], rtol=_SAME, atol=_SAME):
            raise InputError(
                f"{KEY}={name}: gives edges another loss alone than among the others, so it would "
                f"depend on the cut; compute each edge's loss from it and edges.counts alone (they "
                f"are summed and divided afterwards)"
            )


def _take(edges: ScoredEdges, some: Tensor) -> ScoredEdges:
    columns = {key: column[some] for key, column in vars(edges).items() if key != "counts"}
    return replace(edges, **columns)
