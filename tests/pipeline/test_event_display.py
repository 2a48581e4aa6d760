"""`bigtrk display`: the page of an event agrees with what an evaluation of it counts."""

from pathlib import Path

import pytest

from bigtrk.events.reader import read_event
from tests.pipeline.small_pipeline import Typed
from tests.programs import Run, output_of, refusal_of
from tests.reports.pages import self_contained
from tests.test_bad_input import one_line


@pytest.fixture
def pages(workdir: Path) -> Path:
    return workdir


def test_a_pipeline_shows_the_tracks_that_it_makes(
    folder: Path, pages: Path, typed: Typed, run_program: Run
) -> None:
    mine, others = str(folder / "out"), str(folder / "others")
    typed("reconstruct", mine, others, "tracks")
    judged = typed("score", "tracks", others, "--pt-min", "0.7")["events"][0]
    [strict] = [r for r in judged["matching"] if (r["style"], r["mode"]) == ("ATLAS", "strict")]
    event = ["--event", judged["event"], "--pt-min", "0.7", "--parts", "2"]
    command = ["bigtrk", "display", mine, others, "event.html", *event]
    assert output_of(run_program(command)) == "event.html: open it in a browser\n"
    page = self_contained(pages / "event.html")
    words = " ".join(page.texts)
    lost = strict["n_particles"] - strict["n_reconstructed"]
    fakes = strict["n_tracks"] - strict["n_matched"]
    assert f"Lost: {lost} of {strict['n_particles']} particles to be found." in words
    assert f"Fake: {fakes} of {strict['n_tracks']} tracks." in words
    drawn = {trace["name"] for trace in page.figures[0].data}
    assert {"hits of particles found", "tracks", "sector 0", "sector 1", "cut edges"} <= drawn
    hits = read_event(Path(others), judged["event"]).hits
    assert f"<b>{len(hits['x']):,}</b>" in (pages / "event.html").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--event", "event00000011"], "no event 'event00000011'; did you mean 'event000000011'"),
        (["--parts", "99999"], "--parts 99999: must be at most 2,147, the hits in event000000010"),
        (["--builder", "walk"], "a pipeline has its own --builder and --score-cut; leave them out"),
    ],
)
def test_what_cannot_be_shown_is_told(
    options: list[str], told: str, folder: Path, pages: Path, run_program: Run
) -> None:
    command = ["bigtrk", "display", str(folder / "out"), str(folder / "others"), "page.html"]
    assert told in one_line(refusal_of(run_program([*command, *options])))
    assert not (pages / "page.html").exists()
