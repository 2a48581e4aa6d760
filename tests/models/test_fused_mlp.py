"""Fused MLPs of rows against autograd in float64: on a GPU, else in the interpreter."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import fsum

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from bigtrk.models.edges import fused, schedule
from bigtrk.models.edges.fused_pass import mlp_of
from bigtrk.models.edges.passes import Activation
from bigtrk.models.edges.states import Workspace
from tests.models.fused import DEVICE, Results, grad_of, usable_everywhere

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("interpreted_bf16", "generation")]
Activations = tuple[Activation, ...]
BF16 = torch.bfloat16
DECODER: Activations = ("norm", "relu", "norm", "linear")


@dataclass(frozen=True)
class Case:
    """An MLP of random rows; n_inputs: the features of an encoder's."""

    activations: Activations = DECODER
    hidden: int = 32
    n_outputs: int = 1
    n_rows: int = 150
    n_inputs: int = 0


def make(case: Case) -> tuple[Tensor, list[Tensor], Tensor]:
    """Draws rows, weights in turn with biases, and a gradient of the result."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(3))
    widths = [case.n_inputs or case.hidden, *[case.hidden] * (len(case.activations) - 1)]
    widths.append(case.n_outputs if case.activations[-1] == "linear" else case.hidden)
    weights = []
    for n_inputs, n_outputs in pairwise(widths):
        weights += [draw(n_outputs, n_inputs) * n_inputs**-0.5, draw(n_outputs)]
    rows = draw(case.n_rows, widths[0])
    rows = rows if case.n_inputs else rows.relu().bfloat16()  # edges are what a ReLU made
    return rows, weights, draw(case.n_rows, widths[-1])


def exact(case: Case, dtype: torch.dtype = torch.float64) -> Results:
    """Computes by torch's own operations and autograd."""
    rows, weights, grad = make(case)
    made = rows = rows.to(dtype, copy=True).requires_grad_()
    weights = [one.to(dtype, copy=True).requires_grad_() for one in weights]
    for one, weight, bias in zip(case.activations, weights[::2], weights[1::2], strict=True):
        made = made @ weight.T + bias
        made = layer_norm(made, made.shape[-1:]) if one == "norm" else made
        made = made if one == "linear" else made.relu()
    made.backward(grad.to(dtype))
    of_rows = [] if case.n_inputs else [torch.where(rows > 0, grad_of(rows), 0)]
    each = made.detach(), *map(grad_of, weights), *of_rows
    return Results({str(i): values for i, values in enumerate(each)})


def computed(case: Case, lost: bool = False) -> Results:
    """The same by the fused passes. lost: one of the numbers that are read is not finite."""
    rows, weights, grad = make(case)
    rows, grad, weights = rows.to(DEVICE), grad.to(DEVICE), [one.to(DEVICE) for one in weights]
    rows[3:4, -1] = torch.nan if lost else rows[3:4, -1]
    mlp = mlp_of(weights, case.activations, rows, Workspace(case.hidden, "chunk", BF16, DEVICE))
    dtype = torch.float32 if case.activations[-1] == "linear" else BF16
    made = torch.full(grad.shape, torch.nan, dtype=dtype, device=DEVICE)
    mlp.forward_all(made)
    of_weights = [torch.ones_like(weight) for weight in weights]
    of_rows = [] if case.n_inputs else [rows]
    mlp.backward_all(grad.__getitem__, made, of_weights, *of_rows, adds=True)
    each = made, *(one - 1 for one in of_weights), *of_rows
    return Results({str(i): values.cpu() for i, values in enumerate(each)})


@pytest.fixture(params=[8, 9, 10])
def generation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs of several tiles of a generation of cards; a card has its own."""
    if torch.cuda.is_available() and request.param != fused.capability(DEVICE):
        pytest.skip("the tiles of another card")
    monkeypatch.setattr(fused, "capability", lambda _: request.param)
    monkeypatch.setattr(fused, "usable", usable_everywhere)
    monkeypatch.setattr(schedule, "PROGRAMS", 2 * 32)


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(hidden=48, n_outputs=2, n_rows=300),
        Case(("relu", "norm", "linear"), 16),
        Case(("norm", "norm", "relu", "norm", "linear"), 16, n_outputs=2),
        Case(n_rows=1),
        Case(n_rows=0),
        Case(("norm", "relu"), 16, n_inputs=6),
        Case(("relu",), 16, n_inputs=1),
        Case(("norm", "norm", "relu"), 64, n_inputs=17, n_rows=70),
        pytest.param(Case(hidden=128, n_rows=40), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_errors_are_at_most_twice_those_of_torch(case: Case) -> None:
    wanted, made = exact(case), computed(case)
    found, plain = made.errors(wanted), exact(case, BF16).errors(wanted)
    assert fsum(found.values()) <= 2 * fsum(plain.values()), (found, plain)
    assert all(torch.equal(one, made.found[name]) for name, one in computed(case).found.items())


def test_what_is_not_finite_stays_visible() -> None:
    made, *of_weights = computed(Case(n_rows=140), lost=True).found.values()
    assert made[3].isnan().all()
    assert made[4:].isfinite().all()
    assert all(one.isnan().any() for one in of_weights[:6])
