"""The HTML page: well-formed, self-contained, escaped; the plots in the right place."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigtrk.reports import read_run, write_html
from bigtrk.reports.elements.plots import Axis, Line, line_plot, share_bars, thin_out
from tests.reports.run_folders import (
    MakeRun,
    epoch_record,
    evaluation_record,
    run_record,
    run_writer,
    step_record,
)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return run_writer(tmp_path)


VOID = {"meta", "link", "br", "img"}


class Balance(HTMLParser):
    """Counts elements and fails on one that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(path: Path) -> Balance:
    page = Balance()
    page.feed(path.read_text("utf-8"))
    page.close()
    assert not page.open
    return page


def test_page_is_whole_and_needs_nothing_else(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        read_run(make_run("one", evaluation=evaluation_record())),
        read_run(make_run("two", record=run_record(2))),
    ]
    path = tmp_path / "new" / "page.html"
    write_html(runs, path)
    page = parsed(path)
    text = path.read_text("utf-8")
    assert not re.search(r"<(script|link|img|iframe)\b|https?://|url\(|@import", text)
    # Loss per step, five known metrics per epoch (purity is None), speed-up, shares.
    assert page.seen.count("svg") == 1 + 5 + 1 + 1
    assert {"Speed", "Where the time goes", "Evaluation: tracks"} <= set(page.texts)
    assert "99.600" in page.texts
    assert "$" not in text


def test_hostile_names_are_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = "<script>alert('x')&\"$title"
    record = run_record(launcher=evil, engine_detail=evil, config={"model": {evil: evil}})
    evaluation = evaluation_record(data=evil)
    path = tmp_path / "page.html"
    runs = [read_run(make_run(f"{n}<b>&", record=record, evaluation=evaluation)) for n in "xy"]
    write_html(runs, path)
    assert "script" not in parsed(path).seen
    assert "<b>" not in path.read_text("utf-8")
    assert any(evil in text for text in parsed(path).texts)


def test_page_of_a_run_without_metrics(make_run: MakeRun, tmp_path: Path) -> None:
    write_html([read_run(make_run("young", lines=[]))], tmp_path / "page.html")
    page = parsed(tmp_path / "page.html")
    assert "svg" not in page.seen
    assert any("No epoch has finished yet" in text for text in page.texts)


def test_one_point_and_a_nan_can_be_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(lines=[step_record(0, loss=0.123), step_record(1, loss=0.0), epoch_record(0)])
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.123", "NaN"))
    write_html([read_run(folder)], tmp_path / "page.html")
    assert "nan" not in "".join(re.findall(r'points="[^"]*"', (tmp_path / "page.html").read_text()))


def test_curve_goes_through_the_data() -> None:
    svg = ElementTree.fromstring(line_plot("t", "x", [Line("a", ((0, 1.0), (1, 3.0), (2, 2.0)))]))
    polyline = svg.find(".//polyline")
    assert polyline is not None
    pairs = [pair.split(",") for pair in polyline.attrib["points"].split()]
    x, y = ([float(pair[axis]) for pair in pairs] for axis in (0, 1))
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)
    # SVG's y points down: the largest value is drawn highest, and half way is half way.
    assert y[1] < y[2] < y[0]
    assert y[2] == pytest.approx((y[0] + y[1]) / 2, abs=0.11)


def test_bars_fill_their_width_in_proportion() -> None:
    shares = (0.5, 0.25, 0.125, 0.125)
    svg = ElementTree.fromstring(share_bars([("a", shares)], ("w", "x", "y", "z")))
    widths = [float(rect.attrib["width"]) for rect in svg.iter("rect")]
    assert [width / sum(widths) for width in widths] == pytest.approx(list(shares))


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.booleans())
def test_ticks_lie_inside_and_are_few(low: float, span: float, whole: bool) -> None:
    axis = Axis(low, low + span, 0.0, 100.0, whole)
    ticks = axis.ticks()
    room = 1e-6 * span + 1e-9 * abs(low)
    assert all(low - room <= tick <= low + span + room for tick in ticks)
    assert len(ticks) <= 10
    if whole:
        assert all(tick == int(tick) for tick in ticks)
    else:
        assert len(ticks) >= 4


def test_long_curves_are_thinned_to_means() -> None:
    points = tuple((step, float(step % 2)) for step in range(1000))
    thin = thin_out(points)
    assert len(thin) <= 200
    assert sum(y for _, y in thin) / len(thin) == pytest.approx(0.5, abs=0.11)
    assert thin_out(points[:200]) == points[:200]
