"""Pages in a real browser: they draw, ask and complain of nothing, and do what is clicked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bigtrk.records.evaluation import CutRecord, EdgeScores
from bigtrk.reports import (
    read_pipeline,
    read_run,
    read_search,
    write_html,
    write_pipelines_html,
    write_search_html,
)
from bigtrk.reports.display.page import write_display_html
from bigtrk.reports.evaluation.page import write_evaluation_html
from bigtrk.reports.study import StudyReport
from bigtrk.studies.scaling.report import SeriesReport
from tests.browser import CHROMIUM, Browser, browser
from tests.reports.display.events import straight_event
from tests.reports.pipeline_folders import pipeline_evaluation, pipeline_folder
from tests.reports.run_folders import (
    binned_evaluation_record,
    matching_record,
    run_record,
    run_writer,
)
from tests.reports.search.search_folders import SPACE, small_population, small_search
from tests.studies.scaling.test_report import series_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium (apt install chromium)"),
]
PAGES = (
    *("run", "runs", "evaluation", "pipeline", "scaling", "study", "search", "population"),
    *("display", "large display"),
)
DRAW_ALL = "Promise.all(plots.map(plot => { watch.unobserve(plot); return draw(plot); }))"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"

# Reading a pixel waits for all that is being rendered.
RENDERED = f"""{PAINTED}.then(() => {{
  const gl = plots[0]._fullLayout.scene._scene.glplot.gl;
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  return performance.now();
}})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes a page of each kind, with names that are hostile or long."""
    folder = tmp_path_factory.mktemp("pages")
    rates = {0.1: (0.95, 0.5), 0.5: (0.9, 0.1), 0.9: (0.3, 0.01)}
    scan = tuple(
        CutRecord(
            score_cut=cut,
            **matching_record(mode="strict", efficiency=found, fake_rate=fakes).model_dump(),
        )
        for cut, (found, fakes) in rates.items()
    )
    binned = binned_evaluation_record()
    assert binned.tracks is not None
    counts = {"target": (10, 20, 970), "other": (50, 30, 20), "false": (7000, 500, 100)}
    evaluation = binned.model_copy(
        update={
            "tracks": binned.tracks.model_copy(update={"scan": scan}),
            "scores": EdgeScores.model_validate({"limits": (0.0, 0.1, 0.5, 1.0), **counts}),
        }
    )
    make = run_writer(folder / "made")
    one = read_run(make("</script><b>one</b>", evaluation=evaluation))
    others = [make(f"a-run-with-a-rather-long-name-{n}", run_record(n)) for n in (1, 2, 4)]
    write_html([one], folder / "run.html")
    write_html([one, *map(read_run, others)], folder / "runs.html")
    write_evaluation_html(evaluation, folder / "evaluation.html", one)
    pipeline = pipeline_folder(folder / "made" / "pipeline", pipeline_evaluation())
    write_pipelines_html([read_pipeline(pipeline)], folder / "pipeline.html")
    SeriesReport([series_folder(folder / "made" / "weak")]).write_html(folder / "scaling.html")
    study = StudyReport({"mini-batches": others[0], "<i>sectors</i>": others[1]})
    study.write(folder / "study.html", folder / "study.json")
    hostile = {**SPACE, "<b>model.dropout</b>": [0.0, "</script><b>"]}
    search = small_search(folder / "made" / "<b>search</b>", space=hostile)
    write_search_html(read_search(search), folder / "search.html")
    population = small_population(folder / "made" / "population")
    write_search_html(read_search(population), folder / "population.html")
    write_display_html(folder / "display.html", "event1", straight_event(100), {}, one)
    write_display_html(folder / "large display.html", "event2", straight_event(10_000), {})
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


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_is_wider_than_its_screen(width: int, pages: Path, tab: Browser) -> None:
    for name in PAGES[:-1]:
        tab.open(pages / f"{name}.html", width=width)
        tab.run(DRAW_ALL)
        assert tab.run("document.documentElement.scrollWidth") <= width, name


def test_a_click_in_the_legend_hides_a_run_everywhere(pages: Path, tab: Browser) -> None:
    tab.open(pages / "runs.html")
    tab.run(DRAW_ALL)
    hidden = (
        "plots.flatMap(plot => plot.data.filter(trace => trace.visible === 'legendonly'))"
        ".map(trace => trace.legendgroup)"
    )
    assert tab.run(hidden) == []
    tab.click(".plot .legendtoggle", 1)
    tab.run("new Promise(done => setTimeout(done, 1000))")
    names = tab.run(hidden)
    assert set(names) == {"a-run-with-a-rather-long-name-1"}
    assert len(names) > 5
    tab.click(".plot .legendtoggle", 1)
    tab.run("new Promise(done => setTimeout(done, 1000))")
    assert tab.run(hidden) == []


def test_the_scheme_follows_the_system_and_the_switch(pages: Path, tab: Browser) -> None:
    back = "plots[0]._fullLayout.paper_bgcolor"
    drawn = {}
    for scheme in ("light", "dark"):
        tab.open(pages / "run.html", scheme=scheme)
        tab.run(DRAW_ALL)
        drawn[scheme] = tab.run(back)
    assert drawn["light"] != drawn["dark"]
    tab.click(".scheme")
    tab.run("new Promise(done => setTimeout(done, 1000))")
    assert tab.run(back) == drawn["light"]


def test_a_display_of_100_000_hits_is_drawn_soon_and_turns(pages: Path, tab: Browser) -> None:
    seconds: list[float] = []
    while len(seconds) < 3 and not any(each < 5 for each in seconds):
        # Of the three views the first is in sight. Others may compute on this machine, too.
        tab.open(pages / "large display.html", height=300)
        seconds.append(tab.run(f"{PAINTED}.then(() => queue).then(() => {RENDERED})") / 1000)
    assert min(seconds) < 5
    assert tab.run("drawn().length") == 1
    hits = tab.run("plots[0]._fullData.map(t => t.visible === true ? t.x.length : 0)")
    assert sum(hits) >= 50_000
    tab.open(pages / "large display.html")
    tab.run(f"{DRAW_ALL}.then(() => {RENDERED})")
    eye = "JSON.stringify(plots[0]._fullLayout.scene._scene.getCamera().eye)"
    before = tab.run(eye)
    tab.run("plots[0].scrollIntoView({block: 'center'})")
    box = tab.run(
        "(() => { const b = plots[0].getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + b.height / 3]; })()"
    )
    tab.drag((box[0], box[1]), (box[0] + 120, box[1] + 40))
    tab.run("new Promise(done => setTimeout(done, 1000))")
    assert tab.run(eye) != before
