"""`bigtrk report --pdf`: two pages, with fonts, the same bytes each time, whatever names say."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from bigtrk.errors import InputError
from bigtrk.records.evaluation import CutRecord, EdgeScores, EvaluationRecord, TrackBins
from bigtrk.records.metrics import MeanEdgeMetrics
from bigtrk.reports import read_run, write_pdf
from bigtrk.reports.elements.charts import Plot, curve, guide
from bigtrk.reports.elements.estimates import wilson
from bigtrk.reports.elements.layout import Table
from bigtrk.reports.note import write as writing
from bigtrk.reports.note.axes import DIM, LINE, PALETTE, STRIPE, TEXT, draw
from bigtrk.reports.note.letters import CUT, cut, printed, width, wrapped
from bigtrk.reports.note.sheet import HEIGHT, ROOM, Sheet
from bigtrk.reports.note.table import add_table
from tests.programs import CHECKOUT, run_here
from tests.reports.note.pdf_files import A4, font_kinds, page_sizes, texts
from tests.reports.pipeline_folders import pipeline_folder
from tests.reports.run_folders import (
    MakeRun,
    binned,
    binned_evaluation_record,
    epoch_record,
    evaluation_record,
    matching_record,
    run_record,
    run_writer,
    step_record,
    track_record,
)

ODD = "$x_1^2$ \\f{ <b>&amp; #名"


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return run_writer(tmp_path)


def whole_evaluation() -> EvaluationRecord:
    """Makes a record with all that the second page can show."""
    rates = {0.1: (0.95, 0.5), 0.5: (0.9, 0.1), 0.9: (0.3, 0.01)}
    scan = tuple(
        CutRecord(
            score_cut=at,
            **matching_record(mode="strict", efficiency=found, fake_rate=fakes).model_dump(),
        )
        for at, (found, fakes) in rates.items()
    )
    record = binned_evaluation_record()
    assert record.tracks is not None
    counts = {"target": (10, 20, 970), "other": (50, 30, 20), "false": (7000, 500, 100)}
    return record.model_copy(
        update={
            "tracks": record.tracks.model_copy(update={"scan": scan}),
            "scores": EdgeScores.model_validate({"limits": (0.0, 0.1, 0.5, 1.0), **counts}),
        }
    )


def pages_of(folder: Path, path: Path) -> str:
    """Writes the pages of a run, checks that they are two of A4, and gives their text."""
    write_pdf(read_run(folder), path)
    sizes = page_sizes(path)
    assert sizes == [pytest.approx(A4, abs=0.01)] * 2
    assert font_kinds(path) == {"Type0", "CIDFontType2"}, "no Type 3, which is no text"
    return "\n".join(texts(path))


def test_two_pages_of_a_run_with_an_evaluation(make_run: MakeRun, tmp_path: Path) -> None:
    told = pages_of(make_run(evaluation=whole_evaluation()), tmp_path / "new" / "note.pdf")
    low, high = (f"{100 * end:.1f}" for end in wilson(0.9, 120))
    for text in (
        "Run 0001",
        "123 K parameters",
        "track efficiency\n90.0 %",
        f"{low} to {high}; of 120",
        "The model limits the tracks: of 100 particles",
        "Training loss",
        "Learning rate",
        "ROC: edge efficiency, %",
        "Tracks against the score cut, %",
        "pT, GeV",
        "strict, perfect scores",
        "best cut: 0.5",
        "What limits the tracks",
        "2026-11-22 06:41 UTC · page 2 of 2",
    ):
        assert text in told, text
    assert told.count("Track efficiency, %") == 2, "against pT and eta"
    assert "Peak memory of a rank" not in told


def test_two_pages_of_a_run_that_was_not_evaluated(make_run: MakeRun, tmp_path: Path) -> None:
    told = pages_of(make_run(), tmp_path / "note.pdf")
    for text in ("What the training took", "Peak memory of a rank, GiB", "Where the time goes, %"):
        assert text in told
    assert "ROC" not in told
    assert "Time: compute takes 85.0 % of it" in told


def test_what_is_not_recorded_is_not_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    young = pages_of(make_run("young", lines=[]), tmp_path / "young.pdf")
    assert "Training loss" not in young
    assert "young has no finished epoch yet" in young
    edges = evaluation_record(tracks=None, edge_metrics=MeanEdgeMetrics(auc=0.9))
    told = pages_of(make_run("edges", evaluation=edges), tmp_path / "edges.pdf")
    assert "Evaluation: edges" in told
    assert "Evaluation: tracks" not in told
    step = step_record(0, loss=0.123)
    diverged = make_run("diverged", lines=[step, step_record(1, loss=0.0), epoch_record(0)])
    metrics = diverged / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.123", "NaN"))
    assert "Training loss" in pages_of(diverged, tmp_path / "diverged.pdf")


def test_curves_are_drawn_where_they_are() -> None:
    lines = [curve("a & <b>", [(1, 2.0, 1.5, 3.0), (10, 4.0)], 3), guide("_$ideal$", [(1, 1.0)])]
    axes = Figure().subplots()
    draw(axes, Plot("title", "x", [*lines, curve("none", [], 0)], {"xaxis": {"type": "log"}}))
    known, ideal = axes.lines[0], axes.lines[1]
    assert np.asarray(known.get_xydata()).tolist() == [[1.0, 2.0], [10.0, 4.0]]
    assert (known.get_color(), ideal.get_color()) == (PALETTE[3], DIM)
    assert [line.get_linestyle() for line in (known, ideal)] == ["-", "--"]
    [bars] = axes.collections
    assert isinstance(bars, LineCollection)
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[1.5, 3.0], [4.0, 4.0]]
    assert axes.get_xscale() == "log"
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a & <b>", " _$ideal$"]


def test_axes_of_scores_are_named_by_scores() -> None:
    axes = Figure().subplots()
    ticks = {"tickvals": [-2.0, 0.0, 2.0], "ticktext": ["0.1", "0.5", "0.9"]}
    draw(
        axes,
        Plot("title", "score cut", [curve("a", [(-2.0, 1.0), (2.0, 1.0)], 0)], {"xaxis": ticks}),
    )
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.1", "0.5", "0.9"]
    assert axes.get_legend() is None


def test_the_same_run_gives_the_same_bytes(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(evaluation=whole_evaluation())
    write = (
        "import sys; from pathlib import Path; from bigtrk.reports import read_run, write_pdf;"
        "write_pdf(read_run(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    (tmp_path / "matplotlibrc").write_text("font.size: 30\ntext.usetex: true\npdf.fonttype: 3\n")
    for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo")):
        subprocess.run(
            [sys.executable, "-c", write, str(run), f"{seed}.pdf"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(CHECKOUT),
                "PYTHONHASHSEED": seed,
                "TZ": zone,
                "SOURCE_DATE_EPOCH": seed,
            },
            check=True,
        )
    raw = (tmp_path / "1.pdf").read_bytes()
    assert raw == (tmp_path / "2.pdf").read_bytes()
    assert b"/CreationDate (D:20261122064105Z)" in raw
    assert b"/Title (Run 0001)" in raw


@pytest.mark.parametrize("name", [ODD, "$", "x" * 200, "two words " * 15, "-", "{}%s"])
def test_odd_names_are_shown_as_they_are(name: str, make_run: MakeRun, tmp_path: Path) -> None:
    record = run_record(launcher=name, config={"model": {"name": name}, "data": {"train": [name]}})
    evaluation = whole_evaluation().model_copy(update={"data": f"/data/{name}\x1b"})
    folder = make_run(name.strip(), record=record, evaluation=evaluation)
    told = pages_of(folder, tmp_path / "note.pdf")
    shown = name.strip().replace("名", "\\u540d")
    if len(name) < 100:
        assert f"Run {shown}" in told
        assert f"events of /data/{shown}" in told
    assert not re.search("[\x00-\x09\x0b-\x1f\ud800-\udfff]", told)


def test_a_long_run_fits(make_run: MakeRun, tmp_path: Path) -> None:
    settings = {f"a_setting_with_a_rather_long_name_{n}": "x" * 50 for n in range(100)}
    steps = [step_record(n, epoch=0, routes={f"e{n}": 1 + n % 64}) for n in range(200)]
    lines = [*steps, *(epoch_record(n) for n in range(60))]
    told = pages_of(
        make_run(record=run_record(config={"model": settings}), lines=lines), tmp_path / "note.pdf"
    )
    assert CUT in told


def test_nothing_runs_over_the_edge() -> None:
    """Every text of a page that is too full lies on it, and the last is above the margin."""
    page = Sheet()
    rows = tuple((f"row {n}", *("123456789",) * 12) for n in range(300))
    table = Table("A table", ("what", *(f"a column {n}" for n in range(12))), rows, ("x " * 999,))
    page.paragraph("word " * 200, most=3)
    add_table(page, table)
    add_table(page, table)
    renderer = FigureCanvasAgg(page.figure).get_renderer()
    found = [text.get_window_extent(renderer) for text in page.figure.texts]
    across, high = page.figure.bbox.width, page.figure.bbox.height
    assert all(box.x0 >= 0 and box.x1 <= across and box.y0 >= 0 for box in found)
    assert page.y < HEIGHT
    assert high == page.figure.bbox.height
    told = [text.get_text() for text in page.figure.texts]
    assert any(re.match(r"\d+ more rows", each) for each in told)
    assert told.count("A table") == 1


def test_text_is_wrapped_within_its_room() -> None:
    text = "a few words and " + "W" * 150
    lines = wrapped(text, ROOM, 9)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width(line, 9) <= ROOM for line in lines)
    assert wrapped(text, ROOM, 9, most=2)[1].endswith(CUT)
    assert width(wrapped(text, ROOM, 9, most=2)[1], 9) <= ROOM
    assert wrapped("", ROOM, 9) == [""]
    assert cut("short", 100, 9) == "short"
    assert width(cut("W" * 99, 100, 9), 9) <= 100
    assert printed("a\n名\x1b") == "a\\n\\u540d\\x1b"


def test_colours_are_those_of_pages() -> None:
    style = (Path(writing.__file__).parents[1] / "elements" / "page.html").read_text()
    light = dict(re.findall(r"--(\w+): light-dark\((#\w+),", style))
    named = {"dim": DIM, "line": LINE, "stripe": STRIPE, "text": TEXT}
    named |= {f"c{number}": colour for number, colour in enumerate(PALETTE)}
    assert {name: light[name] for name in named} == named


def test_without_matplotlib_it_says_what_to_install(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        writing, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name)
    )
    with pytest.raises(InputError, match=r"pip install 'bigtrk\[pdf\]'"):
        write_pdf(read_run(make_run()), tmp_path / "note.pdf")
    assert not (tmp_path / "note.pdf").exists()


def test_the_command_writes_the_pages_of_one_run(
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run("one")
    make_run("two")
    pipeline_folder(tmp_path / "pipeline")
    status, out, _ = run_here(["bigtrk", "report", "one", "--pdf", "a.pdf"], monkeypatch, capsys)
    assert (status, len(page_sizes(tmp_path / "a.pdf"))) == (0, 2)
    assert "Where the time goes" in out
    for folders in (["one", "two"], ["pipeline"]):
        asked = ["bigtrk", "report", *folders, "--pdf", "b.pdf"]
        status, _, errors = run_here(asked, monkeypatch, capsys)
        assert status == 2
        assert errors.count("\n") == 1
        assert "--pdf b.pdf: has room for one run" in errors
    for place, said in (("missing/b.pdf", "no such folder"), (".", "is a folder")):
        asked = ["bigtrk", "report", "one", "--pdf", place]
        status, _, errors = run_here(asked, monkeypatch, capsys)
        assert status == 2
        assert said in errors
    assert not (tmp_path / "b.pdf").exists()


def test_values_at_their_limits_are_drawn(make_run: MakeRun, tmp_path: Path) -> None:
    """Records refuse what is beyond these."""
    steps = [step_record(n, loss=loss, lr=0.0) for n, loss in enumerate((-1e40, 1e40, 0.0))]
    epochs = [
        epoch_record(
            2**40 - 1, edges_per_second=1e30, seconds=1e-30, batch_seconds=None, peak_memory_bytes=0
        )
    ]
    assert "Training loss" in pages_of(make_run(lines=[*steps, *epochs]), tmp_path / "note.pdf")
    bins = TrackBins(
        efficiency_by_pt=binned((1, 2), edges=(1e-30, 1e40)),
        efficiency_by_eta=binned((1, 2), edges=(-1e40, 1e40)),
    )
    tracks = track_record(matching=(matching_record(mode="strict", bins=bins),))
    scores = EdgeScores(limits=(0.0, 1e-300, 1.0), target=(1, 0), other=(0, 0), false=(0, 2**40))
    record = evaluation_record(tracks=tracks, scores=scores)
    told = pages_of(make_run("evaluated", evaluation=record), tmp_path / "note.pdf")
    assert told.count("Track efficiency, %") == 2
