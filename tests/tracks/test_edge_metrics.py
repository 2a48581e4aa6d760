"""Edge metrics against acorn's formulas, and AUC against counting pairs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.errors import InputError
from bigtrk.tracks.edge_metrics import edge_metrics, summarise_edges

NAMES = {
    "eff": "efficiency",
    "target_pur": "target_purity",
    "total_pur": "total_purity",
    "pur": "purity",
    "auc": "auc",
}


def test_golden_metrics(testdata: Path) -> None:
    folder = testdata / "golden/edge_metrics"
    table = np.genfromtxt(folder / "edges.csv.gz", delimiter=",", skip_header=1)
    logits, y, weights = torch.from_numpy(table).unbind(1)
    golden = json.loads((folder / "expected.json").read_text())["metrics_by_edge_cut"]
    assert len(golden) == 2
    for cut, expected in golden.items():
        found = edge_metrics(logits, y > 0, weights, float(cut))
        for theirs, ours in NAMES.items():
            assert getattr(found, ours) == pytest.approx(expected[theirs], rel=1e-12), (cut, ours)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.sampled_from([-1, 0, 1]))))
def test_auc_counts_pairs_with_ties_half(edges: list[tuple[int, bool, int]]) -> None:
    logits = torch.tensor([float(logit) for logit, _, _ in edges])
    y = torch.tensor([true for _, true, _ in edges], dtype=torch.bool)
    weights = torch.tensor([float(weight) for _, _, weight in edges])
    target = y & (weights > 0)
    above = logits[target][:, None] - logits[~target][None, :]
    found = edge_metrics(logits, y, weights).auc
    if above.numel() == 0:
        assert found is None
    else:
        assert found == pytest.approx(float(((above.sign() + 1) / 2).mean()), abs=1e-6)


def test_the_cut_is_strict_and_empty_ratios_are_none() -> None:
    none = edge_metrics(torch.zeros(2), torch.tensor([True, False]), torch.ones(2))
    assert none.efficiency == 0.0
    assert (none.target_purity, none.total_purity, none.purity) == (None, None, None)
    empty = edge_metrics(torch.zeros(0), torch.zeros(0, dtype=torch.bool), torch.zeros(0))
    assert (empty.efficiency, empty.auc, empty.n_edges) == (None, None, 0)


def test_means_skip_what_is_undefined_and_say_so() -> None:
    y = torch.tensor([True, False])
    good = edge_metrics(torch.tensor([1.0, -1.0]), y, torch.ones(2))
    half = edge_metrics(torch.tensor([1.0, 1.0]), y, torch.ones(2))
    without_target = edge_metrics(torch.tensor([1.0, 1.0]), ~y & False, torch.ones(2))
    means = summarise_edges([good, half, without_target])
    assert means.efficiency == 1.0
    assert means.auc == 0.75
    assert means.purity == pytest.approx(1.5 / 3)
    assert means.events_skipped == 1
    assert summarise_edges([good]).events_skipped == 0
    assert summarise_edges([without_target]).efficiency is None
    assert means.events_without_auc == 1


def test_diverged_logits_are_an_error() -> None:
    with pytest.raises(InputError, match="NaN"):
        edge_metrics(torch.tensor([float("nan")]), torch.tensor([True]), torch.ones(1))
