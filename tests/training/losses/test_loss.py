"""The loss against the field's own, and its counts against a sum by hand."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from bigtrk.graphs.event_graph import Target, edge_weights
from bigtrk.training.data.batch import edge_truth, pt_truth, truth_on
from bigtrk.training.loss import edge_loss, edge_scale, pt_loss, summed


def load_edges(testdata: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    table = np.genfromtxt(
        testdata / "golden/edge_metrics/edges.csv.gz", delimiter=",", skip_header=1
    )
    logits, y, weights = torch.from_numpy(table).unbind(1)
    return logits, y > 0, weights


@pytest.mark.parametrize("balance", ["proportional", "equal"])
def test_golden_loss(testdata: Path, balance: Literal["proportional", "equal"]) -> None:
    expected = json.loads((testdata / "golden/edge_metrics/expected.json").read_text())["loss"]
    logits, y, weights = load_edges(testdata)
    truth = edge_truth(y, weights, torch.ones_like(y))
    loss = edge_loss(logits, truth.label, edge_scale(truth, truth.counts, balance))
    assert loss.item() == pytest.approx(expected[balance], rel=1e-12)


def test_edges_owned_elsewhere_count_for_nothing() -> None:
    y = torch.tensor([True, True, False, False])
    weights = torch.tensor([1.0, 0.0, 1.0, -2.0])
    owns = torch.tensor([True, True, False, True])
    truth = edge_truth(y, weights, owns)
    assert truth.counts.tolist() == [1, 1]
    assert truth.weight.tolist() == [1.0, 0.0, 0.0, 2.0]
    assert truth.label.tolist() == [1.0, 0.0, 0.0, 0.0]


CPU = torch.device("cpu")


@pytest.mark.parametrize("other_weight", [-0.5, 0.0, 0.25])
def test_the_truth_that_travels_in_a_byte_of_each_edge(other_weight: float) -> None:
    """It is that of the marks themselves, and so are the counts, which stay on the host."""
    y, is_target, counted = (torch.arange(8) & bit > 0 for bit in (1, 2, 4))
    is_target &= y
    target = Target(weight=3.0, other_weight=other_weight)
    found = truth_on(CPU, y, is_target, counted, target)
    expected = edge_truth(y, edge_weights(y, is_target, target), counted)
    assert torch.equal(found.label, expected.label)
    assert torch.equal(found.weight, expected.weight)
    assert torch.equal(found.counts, expected.counts)


def test_loss_of_pt_by_hand() -> None:
    nan = torch.nan
    owns = torch.tensor([True, True, True, False])
    truth = pt_truth(torch.tensor([0.5, -1.0, nan, 0.0]), owns, CPU)
    assert truth.count == 2
    predicted = torch.tensor([0.3, 2.0, 5.0, 9.0], requires_grad=True)
    # An error of 0.2, quadratic, and one of 3, linear; of 4 edges over all ranks.
    loss = pt_loss(predicted, truth, torch.tensor(4.0))
    assert loss.item() == pytest.approx((0.2**2 / 2 + 3 - 0.5) / 4)
    (gradient,) = torch.autograd.grad(loss, predicted)
    assert gradient.tolist() == pytest.approx([-0.2 / 4, 1 / 4, 0, 0])
    for n_edges in (0, 3):  # of which none has a known pT
        owned = torch.ones(n_edges, dtype=torch.bool)
        truth = pt_truth(torch.full((n_edges,), nan), owned, CPU)
        predicted = torch.ones(n_edges, requires_grad=True)
        loss = pt_loss(predicted, truth, torch.tensor(0.0))
        assert loss.item() == 0
        assert torch.autograd.grad(loss, predicted)[0].tolist() == [0.0] * n_edges


@pytest.mark.parametrize("n_terms", [0, 1, 1024, 1025, 100_000])
def test_threads_change_no_bit_of_a_sum(n_terms: int) -> None:
    terms = torch.randn(n_terms, generator=torch.Generator().manual_seed(5)).requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            found.append(summed(terms))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert found[0].item() == pytest.approx(terms.double().sum().item(), abs=1e-4)
    (gradient,) = torch.autograd.grad(found[0], terms)
    assert torch.equal(gradient, torch.ones(n_terms))
