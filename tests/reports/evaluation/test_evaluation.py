"""An evaluation in bins of pT and eta: tables, curves, pages."""

import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from bigtrk.records.evaluation import CutRecord, EvaluationRecord
from bigtrk.records.evaluations import write_evaluation
from bigtrk.reports import read_run, show_evaluation, write_evaluation_html, write_html
from bigtrk.reports.elements.binned import cell, curve
from bigtrk.reports.elements.estimates import wilson
from bigtrk.reports.elements.plots import Axis, Line, line_plot
from bigtrk.reports.evaluation.tables import CATEGORIES as TITLES
from bigtrk.tracks.losses import CATEGORIES
from tests.reports.run_folders import (
    binned,
    binned_evaluation_record,
    evaluation_record,
    matching_record,
    run_writer,
    track_record,
)


def shown(record: EvaluationRecord) -> str:
    out = io.StringIO()
    show_evaluation(record, Console(file=out))
    return out.getvalue()


def row(text: str, title: str, start: str) -> list[str]:
    """The cells of the row under `title` that starts so."""
    _, _, below = text.partition(f"{title}\n")
    line = next(line for line in below.splitlines() if line.startswith(start))
    return [part.strip() for part in line[len(start) :].split("  ") if part.strip()]


def test_limits_table() -> None:
    text = shown(binned_evaluation_record())
    title = "What limits the tracks"
    assert row(text, title, "found  ") == ["75", "75.0 ±4.3"]
    assert row(text, title, "model: true edges cut") == ["20", "20.0 ±4.0"]
    assert row(text, title, "found with perfect scores") == ["98", "98.0 ±1.5"]
    assert title not in shown(evaluation_record())
    assert list(TITLES) == list(CATEGORIES)


def test_scanned_cuts_have_a_table_and_the_builder_is_named() -> None:
    cuts = [matching_record(mode="strict", efficiency=cut).model_dump() for cut in (0.25, 0.125)]
    scan = tuple(CutRecord(score_cut=2 * cut["efficiency"], **cut) for cut in cuts)
    tracks = track_record(builder="walk", score_cut=0.01, scan=scan)
    text = shown(evaluation_record(tracks=tracks))
    expected = ["25.00", "10.00", "1.00", "120", "110", "130", "121"]
    assert row(text, "Tracks by score cut", "  0.5") == expected
    assert row(text, "Tracks by score cut", " 0.25")[0] == "12.50"
    assert "Tracks by walk from edges with a score above 0.01;" in " ".join(text.split())
    assert "Tracks by score cut" not in shown(evaluation_record())


def test_bins_that_count_nothing_have_no_row_and_unknown_ones_do() -> None:
    text = shown(binned_evaluation_record())
    by_pt = ["80", "75.0 ±4.8", "100.0 ±0.6", "5.0 ±2.9"]
    assert row(text, "Evaluation by pT", "1 to 2") == by_pt
    assert row(text, "Evaluation by pT", "4 to 8")[-1] == "0.0 ±3.1"
    assert "2 to 4" not in text
    assert row(text, "Evaluation by pT", "unknown")[0] == "2"
    assert row(text, "Evaluation by eta", "-1 to 1")[-1] == cell(9, 10)
    assert max(map(len, text.splitlines())) <= 100


def test_edges_alone_have_their_table() -> None:
    record = binned_evaluation_record().model_copy(update={"tracks": None})
    text = shown(record)
    assert row(text, "Evaluation by eta", "-1 to 1") == ["10", cell(9, 10)]
    assert "by pT" not in text
    assert "What limits" not in text


def test_a_cell_without_counts_is_a_dash() -> None:
    assert cell(0, 0) == "-"
    assert cell(1, 1) == "100.0 ±25.0"


def test_curves_have_wilson_intervals_and_no_point_in_an_empty_bin() -> None:
    ratio = binned((60, 80), (0, 0), (15, 20))
    line = curve("a", ratio, 2, log=True)
    assert [x for x, _ in line.points] == pytest.approx([2**0.5, 32**0.5])
    assert [y for _, y in line.points] == [75, 75]
    low, high = wilson(0.75, 20)
    assert line.errors[1] == pytest.approx((32**0.5, 100 * low, 100 * high))
    assert [x for x, _ in curve("a", ratio, 2, place=0.25).points] == [1.25, 5]
    shifted = curve("a", ratio, 2, log=True, place=0.25)
    assert [x for x, _ in shifted.points] == pytest.approx([2**0.25, 4 * 2**0.25])
    assert curve("a", ratio, 2, dashed=True).errors == ()
    assert curve("a", None, 2).points == ()


def test_log_axis_spaces_by_ratio() -> None:
    axis = Axis(1.0, 100.0, 0.0, 200.0, log=True)
    assert [axis.pixel(x) for x in (1.0, 10.0, 100.0)] == pytest.approx([0, 100, 200])
    assert axis.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert Axis(2.1, 4.9, 0.0, 1.0, log=True).ticks() == [2.1, 4.9]
    points = ((1.0, 0.0), (2.0, 1.0), (4.0, 0.0))
    svg = ElementTree.fromstring(line_plot("t", "x", [Line("a", points)], whole=False, log=True))
    polyline = svg.find(".//polyline")
    assert polyline is not None
    x = [float(pair.split(",")[0]) for pair in polyline.attrib["points"].split()]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)
    assert [text.text for text in svg.findall("text[@class='x']")] == ["1", "2"]


def test_pages_show_the_plots(tmp_path: Path) -> None:
    record = binned_evaluation_record()
    write_evaluation_html(record, tmp_path / "evaluation.html")
    page = (tmp_path / "evaluation.html").read_text()
    # Efficiency by both, lost and duplicates by pT, fakes and edge purity by eta.
    assert page.count("<svg") == 6
    for title in ("Track efficiency", "Particles lost", "Found more than once", "Fake", "purity"):
        assert re.search(f'<text class="title"[^>]*>[^<]*{title}', page), title
    assert page.count('class="s0 dashed"') == 1
    assert "What limits the tracks" in page
    assert not re.search(r"<(script|link|img|iframe)\b|https?://|url\(|@import", page)

    make_run = run_writer(tmp_path)
    plain = tmp_path / "plain.html"
    write_html([read_run(make_run("one", evaluation=evaluation_record()))], plain)
    assert "against pT and eta" not in plain.read_text()
    both = tmp_path / "both.html"
    run = make_run("<two>", evaluation=record)
    write_html([read_run(run)], both)
    assert "Evaluation of &lt;two&gt; against pT and eta" in both.read_text()
    assert both.read_text().count("<svg") == plain.read_text().count("<svg") + 6
    write_evaluation(run, record.model_copy(update={"data": "/data/others"}))
    write_html([read_run(run)], both)
    for folder in ("graphs", "others"):
        title = f"Evaluation of &lt;two&gt; on {folder} against pT and eta"
        assert both.read_text().count(title) == 1
