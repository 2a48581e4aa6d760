"""Plots against the score: ROC, purity, histograms, and the best cut."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bigtrk.records.evaluation import CutRecord, EdgeScores
from bigtrk.records.run_folder import read_run
from bigtrk.reports.evaluation import evaluation_report
from bigtrk.reports.figures import wilson
from bigtrk.reports.metrics import best_scan, kept_by_cut
from bigtrk.reports.page import write_page
from bigtrk.tracks.edge_metrics import SCORE_LIMITS, edge_metrics, edge_scores_record, score_counts
from tests.reports.pages import self_contained
from tests.reports.run_folders import evaluation_record, matching_record, run_writer, track_record

SCORES = EdgeScores(limits=(0.0, 0.5, 1.0), target=(1, 9), other=(2, 2), false=(30, 6))


def test_cuts_keep_what_metrics_count() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(3000, generator=generator, dtype=torch.float64)
    y = torch.rand(3000, generator=generator) < torch.sigmoid(logits)
    is_target = y & (torch.rand(3000, generator=generator) < 0.8)
    counts = score_counts(torch.sigmoid(logits).numpy(), y.numpy(), is_target.numpy())
    kept = kept_by_cut(edge_scores_record([counts]))
    for cut in (0.5, SCORE_LIMITS[30], SCORE_LIMITS[60]):
        [found] = [each for each in kept if each.cut == cut]
        expected = edge_metrics(logits, y, is_target, cut)
        assert found.efficiency == pytest.approx(expected.efficiency)
        assert found.purity == pytest.approx(expected.purity)
        others = expected.n_predicted - expected.n_found
        assert found.others == pytest.approx(others / (3000 - expected.n_target))
    x, y_axis = ([getattr(each, name) for each in kept] for name in ("others", "efficiency"))
    assert expected.auc is not None
    assert -np.trapezoid(y_axis, x) == pytest.approx(expected.auc, abs=2e-3)
    assert kept_by_cut(SCORES.model_copy(update={"target": (0, 0)})) == [], "of one kind"


def test_scores_at_the_ends_and_at_a_limit_are_counted() -> None:
    all_true = np.ones(4, dtype=bool)
    counts = score_counts(np.array([0.0, 0.5, 0.5000001, 1.0]), all_true, all_true)
    half = SCORE_LIMITS.index(0.5)
    assert counts.sum() == 4
    assert counts[0, half:].sum() == 2, "0.5 is not above a cut of 0.5"
    assert counts[0, [0, -1]].tolist() == [1, 1]


def test_pages_show_curves_and_histograms(tmp_path: Path) -> None:
    run = read_run(run_writer(tmp_path)("a run"))
    write_page(evaluation_report(evaluation_record(scores=SCORES), run), tmp_path / "page.html")
    page = self_contained(tmp_path / "page.html")
    roc = page.figure("ROC: edge efficiency, %").trace("all cuts, AUC 97.000 %")
    assert roc["x"] == pytest.approx([100, 20])
    assert roc["y"] == pytest.approx([100, 90])
    purity = page.figure("Edge purity, %")
    assert purity.trace("all cuts")["y"] == pytest.approx([1000 / 46, 60])
    assert purity.trace("best cut: 0.5")["y"] == pytest.approx([60])
    assert page.figure("Edges by score").trace("false edges")["y"] == [30, 6, 6]
    edges = page.figure("Edges against the score cut, %")
    assert edges.trace("edge efficiency")["y"] == [90]
    assert any("--tracks --scan-cuts" in text for text in page.texts)


def test_the_best_cut_is_marked_and_its_command_said(tmp_path: Path) -> None:
    rates = {0.1: (0.95, 0.5), 0.5: (0.9, 0.1), 0.9: (0.3, 0.01)}
    scan = [
        CutRecord(
            score_cut=cut,
            **matching_record(mode="strict", efficiency=found, fake_rate=fakes).model_dump(),
        )
        for cut, (found, fakes) in rates.items()
    ]
    best = best_scan(scan)
    assert best is not None
    assert best.score_cut == 0.5
    record = evaluation_record(tracks=track_record(builder="walk", scan=tuple(scan)))
    run = read_run(run_writer(tmp_path)("a run"))
    write_page(evaluation_report(record, run), tmp_path / "page.html")
    page = self_contained(tmp_path / "page.html")
    tracks = page.figure("Tracks against the score cut, %")
    assert tracks.trace("track efficiency")["y"] == pytest.approx([95, 90, 30])
    assert tracks.trace("fake tracks")["y"] == pytest.approx([50, 10, 1])
    errors = tracks.trace("track efficiency")["error_y"]
    assert errors["array"][0] == pytest.approx(100 * wilson(0.95, 120)[1] - 95)
    assert tracks.trace("best cut: 0.5")["x"] == pytest.approx([0.0])
    command = f"bigtrk infer '{run.folder}' GRAPHS TRACKS --builder walk --score-cut 0.5"
    assert command in page.texts
    assert best_scan([]) is None
