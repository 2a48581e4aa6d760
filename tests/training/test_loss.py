"""The loss against the field's own, and its counts against a sum by hand."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from bigtrk.training.loss import edge_loss, edge_scale, edge_truth


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
