"""The HTML page: well-formed, self-contained, escaped; the plots hold what the records do."""

from pathlib import Path

import pytest

from bigtrk.records.metrics import EmbeddingMetrics, MeanEdgeMetrics, Neighbourhood, NormsRecord
from bigtrk.records.run_folder import read_run
from bigtrk.reports.document import Curve, Document, Plot, Plots
from bigtrk.reports.figures import wilson
from bigtrk.reports.page import MOST_POINTS, thin_out, write_page
from bigtrk.reports.runs import runs_report
from tests.reports.pages import parsed, self_contained
from tests.reports.run_folders import (
    MakeRun,
    binned_evaluation_record,
    epoch_record,
    evaluation_record,
    run_record,
    step_record,
)


def test_page_is_whole_and_needs_nothing_else(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        read_run(make_run("one", evaluation=evaluation_record())),
        read_run(make_run("two", record=run_record(2))),
    ]
    path = tmp_path / "new" / "page.html"
    write_page(runs_report(runs), path)
    page = self_contained(path)
    # Purity is not known; nothing of the evaluation is in bins.
    assert [figure.title for figure in page.figures] == [
        *("Training loss", "Learning rate"),
        *("Validation loss", "Efficiency, %", "Target purity, %", "Total purity, %", "AUC, %"),
        "figure",
    ]
    assert {"Speed", "Where the time goes", "Evaluation: tracks", "Side by side"} <= set(page.texts)
    assert "99.600" in page.texts


def test_plots_hold_the_records(make_run: MakeRun, tmp_path: Path) -> None:
    counted = MeanEdgeMetrics(efficiency=0.9, n_target=100, n_predicted=120, n_found=90)
    norms = NormsRecord(gradient={"a": 3.0, "b": 4.0}, weight={"a": 1.0, "b": None})
    steps = [step_record(0, loss=0.5, norms=norms), step_record(1, loss=0.25)]
    at = {"98": Neighbourhood(radius=0.1, edges=2000, efficiency=0.97)}
    embedding = EmbeddingMetrics(loss=0.5, at=at)
    lines = [*steps, epoch_record(0, validation=counted, embedding=embedding)]
    path = tmp_path / "page.html"
    write_page(runs_report([read_run(make_run("0001", lines=lines))]), path)
    page = self_contained(path)
    assert page.figure("Training loss").trace("0001")["y"] == [0.5, 0.25]
    assert page.figure("Norm of the gradient").trace("0001")["y"] == [5.0]
    assert "Norm of the weights" not in page.labels
    efficiency = page.figure("Efficiency, %").trace("0001")
    low, high = wilson(0.9, 100)
    assert (efficiency["x"], efficiency["y"]) == ([1], [90.0])
    assert efficiency["error_y"]["arrayminus"] == pytest.approx([90 - 100 * low])
    assert efficiency["error_y"]["array"] == pytest.approx([100 * high - 90])
    assert {"98 %", "2,000"} <= set(page.texts), "neighbours in the embedding"
    shares = page.figures[-1]
    assert shares.trace("compute")["x"] == [85.0]
    assert shares.layout["yaxis"]["type"] == "category", "0001 is no number"


def test_first_screen_says_what_was_trained_and_what_limits_it(
    make_run: MakeRun, tmp_path: Path
) -> None:
    record = run_record(config={"data": {"train": ["/data/graphs"]}, "model": {"name": "mlp"}})
    path = tmp_path / "page.html"
    run = make_run("0001", record=record, evaluation=binned_evaluation_record())
    write_page(runs_report([read_run(run)]), path)
    text = path.read_text("utf-8")
    first = text[text.index("</h1>") : text.index('class="plots"')]
    trained = (
        "Run 0001: mlp model of 123 K parameters, trained on 6 events of /data/graphs "
        "(12.0 K nodes, 51.0 K edges) with DDP on 1 rank, started by torchrun; 3 epochs"
    )
    assert trained in first
    low, high = (f"{100 * end:.1f}" for end in wilson(0.9, 120))
    interval = f"<span>{low} to {high}; of 120</span>"
    assert f"<span>track efficiency</span><b>90.0 %</b>{interval}" in first
    assert (
        "The model limits the tracks. Losses in 100 particles: the graph 2.0, the model 23.0."
        in first
    )
    assert "Time: compute takes 85.0 % of it; reduction 6.0 %, exchange 5.0 %" in first


def test_hostile_names_are_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    evil = "</script><script>alert('x')&\"{{made}}</script><b>\x1b"
    record = run_record(launcher=evil, engine_detail=evil, config={"model": {evil: evil}})
    evaluation = evaluation_record(data=evil)
    path = tmp_path / "page.html"
    named = [f"{n}<b>&<script>x{{}}" for n in "xy"]
    runs = [read_run(make_run(name, record=record, evaluation=evaluation)) for name in named]
    write_page(runs_report(runs), path)
    page = self_contained(path)
    assert page.tags.count("script") == len(page.figures) + 3, "figures, theme, plotly, its use"
    assert any("alert('x')&\"{{made}}" in text for text in page.texts)
    names = [trace["name"] for trace in page.figure("Training loss").data]
    assert names == ["x&lt;b&gt;&amp;&lt;script&gt;x{}", "y&lt;b&gt;&amp;&lt;script&gt;x{}"]
    assert "\x1b" not in path.read_text("utf-8")


def test_a_page_may_have_no_metrics_one_point_and_a_nan(make_run: MakeRun, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(runs_report([read_run(make_run("young", lines=[]))]), path)
    page = parsed(path)
    assert not page.figures
    assert any("No epoch has finished yet" in text for text in page.texts)
    folder = make_run(lines=[step_record(0, loss=0.123), step_record(1, loss=0.0), epoch_record(0)])
    metrics = folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.123", "NaN"))
    write_page(runs_report([read_run(folder)]), path)
    loss = parsed(path).figure("Training loss").trace("0001")
    assert (loss["x"], loss["y"]) == ([1], [0.0])


def test_curves_have_intervals_where_they_are_known(tmp_path: Path) -> None:
    curves = [Curve("a", [(1, 2.0, 1.5, 3.0), (2, 4.0)], 9), Curve("b", [(1, 2.0)])]
    plots = Plots("both", [Plot("drawn", ("x",), curves), Plot("empty", ("x",), [Curve("c", [])])])
    write_page(Document("title", "", [], [], [plots]), tmp_path / "page.html")
    [figure] = self_contained(tmp_path / "page.html").figures
    error = figure.trace("a")["error_y"]
    assert (error["array"], error["arrayminus"]) == ([1.0, 0.0], [0.5, 0.0])
    assert figure.trace("a")["line"]["color"] == "var(--c1)"
    assert "error_y" not in figure.trace("b")
    assert "barmode" not in figure.layout, "for which the page's script leaves logarithms out"


def test_long_curves_are_thinned_to_means() -> None:
    points = [(float(step), float(step % 2)) for step in range(5 * MOST_POINTS)]
    thin = thin_out(points)
    assert len(thin) == MOST_POINTS
    assert sum(y for _, y in thin) / len(thin) == pytest.approx(0.5, abs=0.11)
    assert thin_out(points[:200]) == points[:200]
