"""Pages in a real browser: they draw, ask and complain of nothing, and do what is clicked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docs.page_pictures import WIDTHS
from tests.browser import CHROMIUM, Browser, browser
from tests.reports.every_page import DRAW_ALL, PAGES, PAINTED, write_pages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium (apt install chromium)"),
]
WAIT = "new Promise(done => setTimeout(done, 1000))"
# Traces that a click in the legend has switched off, by the names that it switches.
HIDDEN = (
    "plots.flatMap(plot => plot.data.filter(trace => trace.visible === 'legendonly'))"
    ".map(trace => trace.legendgroup)"
)
LOGARITHMS = '.modebar-btn[data-title="logarithms on the vertical axis"]'
# Pairs of texts of a figure's legend and of the title of its x axis whose boxes overlap.
COLLIDING = """plots.flatMap(plot => {
  const texts = [...plot.querySelectorAll('.legendtext, .xtitle')];
  const boxes = texts.map(text => text.getBoundingClientRect());
  return texts.flatMap((text, i) => texts.slice(0, i).filter((_, j) => {
    const [a, b] = [boxes[i], boxes[j]];
    return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  }).map(other => [plot.ariaLabel, text.textContent, other.textContent]));
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write_pages(folder)
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_pages_draw_and_ask_for_nothing(name: str, pages: Path, tab: Browser) -> None:
    page = pages / f"{name}.html"
    tab.open(page)
    tab.run(f"{DRAW_ALL}.then(() => {PAINTED})")
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("data:", "blob:"))] == [
        page.resolve().as_uri()
    ]
    points = tab.run("plots.map(plot => plot.calcdata.flat().length)")
    assert points
    assert all(points)
    assert tab.run("document.querySelectorAll('b b, h1 b, h1 i').length") == 0
    assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    assert page.stat().st_size < 12e6


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_screen_and_no_texts_collide(
    width: int, pages: Path, tab: Browser
) -> None:
    for name in PAGES[:-1]:
        tab.open(pages / f"{name}.html", width=width)
        tab.run(DRAW_ALL)
        assert tab.run("document.documentElement.scrollWidth") <= width, name
        assert name != "runs" or tab.run(COLLIDING) == []


@pytest.mark.parametrize(
    ("page", "number", "name", "figures"),
    [("runs", 1, "a-run-with-a-rather-long-name-1", 6), ("evaluation", 2, "best cut: 0.5", 4)],
)
def test_a_click_in_the_legend_hides_a_name_everywhere(
    pages: Path, tab: Browser, page: str, number: int, name: str, figures: int
) -> None:
    tab.open(pages / f"{page}.html")
    tab.run(DRAW_ALL)
    assert tab.run(HIDDEN) == []
    tab.click(".plot .legendtoggle", number)
    tab.run(WAIT)
    names = tab.run(HIDDEN)
    assert set(names) == {name}
    assert len(names) >= figures
    tab.click(".plot .legendtoggle", number)
    tab.run(WAIT)
    assert tab.run(HIDDEN) == []


def test_a_button_takes_logarithms(pages: Path, tab: Browser) -> None:
    tab.open(pages / "runs.html")
    tab.run(DRAW_ALL)
    types = []
    for _ in range(3):
        types.append(tab.run("plots[0]._fullLayout.yaxis.type"))
        tab.click(LOGARITHMS)
        tab.run(WAIT)
    assert types == ["linear", "log", "linear"]


def test_the_scheme_follows_the_system_and_the_switch(pages: Path, tab: Browser) -> None:
    back = "plots[0]._fullLayout.paper_bgcolor"
    drawn = {}
    for scheme in ("light", "dark"):
        tab.open(pages / "run.html", scheme=scheme)
        tab.run(DRAW_ALL)
        drawn[scheme] = tab.run(back)
    assert drawn["light"] != drawn["dark"]
    tab.click(".scheme")
    tab.run(WAIT)
    assert tab.run(back) == drawn["light"]


def test_paper_has_all_plots_in_light_colours(pages: Path, tab: Browser) -> None:
    tab.open(pages / "run.html", scheme="dark")
    assert tab.run("drawn().length < plots.length")
    tab.run(f"(dispatchEvent(new Event('beforeprint')), {WAIT})")
    assert tab.run("drawn().length === plots.length")
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.run(f"(dispatchEvent(new Event('afterprint')), {WAIT})")
    assert tab.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert tab.complaints == []


def test_all_views_of_100_000_hits_are_drawn(pages: Path, tab: Browser) -> None:
    page = pages / "large display.html"
    tab.open(page)
    height = tab.run("document.documentElement.scrollHeight")
    tab.open(page, height=height)  # all three views are in sight
    tab.run(f"{PAINTED}.then(() => queue)")
    assert tab.run("drawn().length") == 3
    hits = "plot._fullData.map(t => t.visible === true ? t.x.length : 0).reduce((a, b) => a + b)"
    assert min(tab.run(f"plots.map(plot => {hits})")) >= 50_000
