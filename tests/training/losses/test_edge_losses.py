"""Focal loss against its paper's formula, losses of users' own, and what breaks their rules."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from bigtrk.errors import InputError
from bigtrk.training.data.batch import EdgeTruth, edge_truth
from bigtrk.training.loss import check_loss, edge_scale, make_loss
from bigtrk.training.settings import TrainingSettings
from bigtrk.user_code import allow_code
from tests.training import user_functions

CPU = torch.device("cpu")


def edges(n: int = 200) -> tuple[Tensor, EdgeTruth]:
    generator = torch.Generator().manual_seed(5)
    draws = torch.rand(4, n, generator=generator, dtype=torch.float64)
    y, weights = draws[0] < 0.4, torch.where(draws[1] < 0.2, 0.0, 2 * draws[1])
    truth = edge_truth(y, weights, torch.ones_like(y))
    pt = torch.where(y & (draws[2] < 0.7), 3 * draws[2], torch.nan)
    truth = replace(truth, target=y & (draws[2] < 0.5), pt=pt)
    return (12 * draws[3] - 6).requires_grad_(), truth


def loss_of(settings: TrainingSettings, logits: Tensor, truth: EdgeTruth) -> Tensor:
    scale = edge_scale(truth, truth.counts, settings.class_balance)
    return make_loss(settings)(logits, truth, truth.counts, scale)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_is_that_of_the_paper_with_finite_gradients(gamma: float) -> None:
    """The paper's is cross-entropy times (1 - p_t) to the power gamma, as torchvision has it."""
    logits, truth = edges()
    settings = TrainingSettings(loss="focal", focal_gamma=gamma)
    score, label = logits.sigmoid(), truth.label
    entropy = binary_cross_entropy_with_logits(logits, label, reduction="none")
    p_t = score * label + (1 - score) * (1 - label)
    expected = (entropy * (1 - p_t) ** gamma * truth.weight).sum() / truth.counts.sum()
    found = loss_of(settings, logits, truth)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    wanted, made = (torch.autograd.grad(loss, logits)[0] for loss in (expected, found))
    torch.testing.assert_close(made, wanted, rtol=1e-10, atol=1e-16)
    logits = torch.tensor([-200.0, 0.0, 200.0] * 2, requires_grad=True)
    label = torch.tensor([0.0] * 3 + [1.0] * 3)
    loss = loss_of(settings, logits, EdgeTruth(label, torch.ones(6), torch.tensor([3, 3])))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def own(name: str) -> str:
    allow_code([user_functions.HERE])
    return f"{user_functions.HERE}:{name}"


def test_a_loss_of_ones_own_by_hand() -> None:
    logits, truth = edges(50)
    check_loss(own("squared"), CPU)
    assert truth.target is not None
    assert truth.pt is not None
    total = 0.0
    positives, negatives = truth.counts.tolist()
    rows = zip(logits, truth.label, truth.weight, truth.target, truth.pt, strict=True)
    for logit, label, weight, in_target, pt in rows:
        error = (float(logit.detach().sigmoid()) - float(label)) ** 2
        stiff = 1 if pt.isnan() else 1 + float(pt)
        each = error * stiff * (1 + int(in_target)) / (0.1 + positives / (positives + negatives))
        total += each * float(weight) / (positives if label else negatives)
    settings = TrainingSettings(loss=own("squared"), class_balance="equal")
    assert float(loss_of(settings, logits, truth).detach()) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "has no 'missing'; correct the name"),
        ("NOT_CALLABLE", "is not callable .float.; name a function"),
        ("leaving", r"fails \(RuntimeError: it calls sys.exit\(0\), .*\); correct it"),
        ("failing", r"fails \(RuntimeError: no loss of 400\); correct it"),
        ("mean_loss", r"returns shape \[\] for 400 edges; return one loss per"),
        ("rounded", r"returns torch.float16; return torch.float64, as"),
        ("constant", "has no gradient for edges.logits"),
        ("of_pt", "gives a loss of nan .* pt nan GeV; keep loss and gradient finite, .* pt is NaN"),
        ("of_masked", "gives a loss of inf .*or the weight is 0"),
        ("rooted", "gives a gradient of nan"),
        ("ranking", "the loss of an edge depends on other edges, so it would change when a"),
    ],
)
def test_a_loss_that_breaks_its_rules_is_told(name: str, words: str) -> None:
    with pytest.raises(InputError, match=f"training.loss={own(name)}: .*{words}") as told:
        check_loss(own(name), CPU)
    assert "\n" not in str(told.value)


def test_names_of_losses_are_checked() -> None:
    with pytest.raises(ValueError, match=r"must be bce, focal, or a function of your own"):
        TrainingSettings(loss="hinge")
    for name in ("bce", "focal"):
        check_loss(name, CPU)
