"""An evaluation: tables, curves in bins, pages."""

from pathlib import Path

import pytest

from bigtrk.records.evaluation import CutRecord, EvaluationRecord, write_evaluation
from bigtrk.records.run_folder import read_run
from bigtrk.reports.evaluation import CATEGORIES as TITLES
from bigtrk.reports.evaluation import evaluation_report
from bigtrk.reports.figures import wilson
from bigtrk.reports.metrics import bin_curve
from bigtrk.reports.page import write_page
from bigtrk.reports.runs import runs_report
from bigtrk.tracks.evaluation import CATEGORIES
from tests.reports.pages import parsed, printed, row_of, self_contained
from tests.reports.run_folders import (
    binned,
    binned_evaluation_record,
    evaluation_record,
    matching_record,
    run_writer,
    track_record,
)


def shown(record: EvaluationRecord) -> str:
    return printed(evaluation_report(record))


def test_limits_table() -> None:
    text = shown(binned_evaluation_record())
    title = "What limits the tracks"
    assert row_of(text, title, "graph: no true edges")[1] == "1"
    assert row_of(text, title, "model: true edges cut")[1:] == ["20", "20.0 ±4.0"]
    assert row_of(text, title, "found with perfect scores")[1:] == ["98", "98.0 ±1.5"]
    assert f"{title}\n" not in shown(evaluation_record())
    assert list(TITLES) == list(CATEGORIES)


def test_scanned_cuts_have_a_table_and_the_builder_is_named() -> None:
    cuts = [matching_record(mode="strict", efficiency=cut).model_dump() for cut in (0.25, 0.125)]
    scan = tuple(CutRecord(score_cut=2 * cut["efficiency"], **cut) for cut in cuts)
    tracks = track_record(builder="walk", score_cut=0.01, scan=scan)
    text = shown(evaluation_record(tracks=tracks))
    expected = ["25.00", "10.00", "1.00", "120", "110", "130", "121"]
    assert row_of(text, "Tracks by score cut", "0.5")[1:] == expected
    assert row_of(text, "Tracks by score cut", "0.25")[1] == "12.50"
    assert "Tracks by walk from edges with a score above 0.01;" in " ".join(text.split())
    assert "Tracks by score cut" not in shown(evaluation_record())


def test_curves_have_wilson_intervals_and_no_point_in_an_empty_bin() -> None:
    ratio = binned((60, 80), (0, 0), (15, 20))
    line = bin_curve("a", ratio, "pt", 2)
    (x, y, *_), (far, _, low, high) = line.points
    assert (x, y, far) == pytest.approx((2**0.5, 75, 32**0.5))
    assert (low, high) == pytest.approx([100 * end for end in wilson(0.75, 20)])
    assert list(line.texts) == ["1 to 2: 60 of 80", "4 to 8: 15 of 20"]
    assert [x for x, *_ in bin_curve("a", ratio, "eta", 2, place=0.25).points] == [1.25, 5]
    assert bin_curve("a", ratio, "pt", 2, dashed=True).style == "dashes"
    assert not bin_curve("a", None, "pt", 2).points


def test_pages_show_the_plots(tmp_path: Path) -> None:
    record = binned_evaluation_record()
    write_page(evaluation_report(record), tmp_path / "evaluation.html")
    page = self_contained(tmp_path / "evaluation.html")
    assert page.labels == [
        *("Track efficiency, %", "Particles lost, %", "Found more than once, %"),
        *("Track efficiency, %", "Fake tracks, %", "Edge purity, %"),
    ]
    by_pt, by_eta = (f for f in page.figures if f.title == "Track efficiency, %")
    assert [figure.layout["xaxis"]["type"] for figure in (by_pt, by_eta)] == ["log", "linear"]
    assert by_pt.trace("strict, perfect scores")["line"]["dash"] == "dash"
    assert "What limits the tracks" in page.texts
    assert "bigtrk evaluate RUN /data/graphs --tracks --scan-cuts" not in page.texts

    make_run = run_writer(tmp_path)
    plain = tmp_path / "plain.html"
    write_page(runs_report([read_run(make_run("one", evaluation=evaluation_record()))]), plain)
    assert "in bins" not in plain.read_text()
    both = tmp_path / "both.html"
    run = make_run("<two>", evaluation=record)
    write_page(runs_report([read_run(run)]), both)
    assert "Evaluation of &lt;two&gt; in bins" in both.read_text()
    assert len(parsed(both).figures) == len(parsed(plain).figures) + 6
    write_evaluation(run, record.model_copy(update={"data": "/data/others"}))
    write_page(runs_report([read_run(run)]), both)
    for folder in ("graphs", "others"):
        assert both.read_text().count(f"Evaluation of &lt;two&gt; on {folder} in bins") == 1


def test_the_page_of_an_evaluation_names_the_run(tmp_path: Path) -> None:
    run = read_run(run_writer(tmp_path)("0001"))
    write_page(evaluation_report(evaluation_record(), run), tmp_path / "page.html")
    told = " ".join(self_contained(tmp_path / "page.html").texts)
    for word in ("0001", "123 K parameters", "/data/graphs", "2026-11-22", "torch 2.13.0"):
        assert word in told
