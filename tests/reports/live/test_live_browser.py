"""The page of runs in a real browser: it follows the records without being opened again."""

import time
from pathlib import Path

import pytest

from bigtrk.records.run_folder import append_metrics
from tests.browser import CHROMIUM, Browser, browser
from tests.reports.live.serving import serving
from tests.reports.run_folders import epoch_record, run_record, run_writer, step_record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium (apt install chromium)"),
]
LOSS = "plots.find(plot => plot.ariaLabel === 'step/loss')"
WAIT = 60.0  # s


def until(tab: Browser, condition: str) -> None:
    """Waits for what the page is to come to by itself."""
    end = time.monotonic() + WAIT
    while not tab.run(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.2)


def test_a_page_follows_its_runs(tmp_path: Path) -> None:
    make = run_writer(tmp_path)
    first = make("</script><b>one</b>", lines=[step_record(0), step_record(1)])
    second = make("two", run_record(2), lines=[step_record(0)])
    with browser(tmp_path) as tab:
        with serving(first, second) as server:
            follow(tab, server.address, first, second)
        until(tab, "document.getElementById('silent').checkVisibility()")


def follow(tab: Browser, address: str, first: Path, second: Path) -> None:
    """Opens the page of two runs, and adds records to them."""
    for width in (360, 1280):
        tab.open(address, width=width)
        until(tab, f"{LOSS}.calcdata?.length === 2")
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    tab.run("window.isTheSamePage = true")
    assert tab.run(f"{LOSS}.data[0].x.length") == 2
    append_metrics(first, step_record(2, loss=0.125))
    until(tab, f"{LOSS}.calcdata[0].length === 3")
    assert tab.run(f"{LOSS}.data[0].y[2]") == 0.125
    assert not tab.run("plots.some(plot => plot.ariaLabel === 'epoch/train_loss')")
    for epoch in range(2):
        append_metrics(second, epoch_record(epoch))
    until(tab, "plots.some(plot => plot.ariaLabel === 'epoch/shares')")
    tab.run("document.querySelector('[aria-label=\"epoch/shares\"]').scrollIntoView()")
    until(tab, "drawn().some(plot => plot.ariaLabel === 'epoch/shares')")
    # A zoom stays where it is while points are added.
    tab.run(f"Plotly.relayout({LOSS}, {{'xaxis.range': [0, 1]}}).then(() => 0)")
    append_metrics(first, step_record(3))
    until(tab, f"{LOSS}.calcdata[0].length === 4")
    assert tab.run(f"{LOSS}._fullLayout.xaxis.range") == [0, 1]
    assert tab.run("window.isTheSamePage")
    assert tab.run("document.querySelectorAll('b, h1 b').length") == 0
    assert tab.complaints == []
    asked = {url for url in tab.requests if not url.startswith(("data:", "blob:"))}
    assert asked == {address, f"{address}state"}
    assert not tab.run("document.getElementById('silent').checkVisibility()")


def test_another_page_cannot_read_the_state(tmp_path: Path) -> None:
    run = run_writer(tmp_path)()
    with serving(run) as server, browser(tmp_path) as tab:
        (tmp_path / "other.html").write_text("<!doctype html><title>other</title>")
        tab.open(tmp_path / "other.html")
        read = f"fetch('{server.address}state').then(a => a.text()).catch(() => 'refused')"
        assert tab.run(read) == "refused"
