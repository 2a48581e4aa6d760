"""The report of a search, finished or not: page, terminal and JSON, against small records."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bigtrk.commands import searches
from bigtrk.disk.folder_lock import LOCK, FolderLock
from bigtrk.errors import InputError
from bigtrk.records.search import RESULT, read_search
from bigtrk.reports import show_search, summarise_search, write_search_html
from bigtrk.reports.elements.estimates import wilson
from bigtrk.reports.search import plots
from bigtrk.reports.search.axes import Axis
from tests.programs import run_here
from tests.reports.pages import Page, parsed
from tests.reports.search.search_folders import (
    CURVES,
    LR,
    SPACE,
    search_record,
    small_population,
    small_search,
    trial_record,
    write_search,
    write_trial,
)

TITLES = [
    "AUC, % by trial",
    "AUC, % by epoch",
    "Settings and metric",
    "AUC, % against optimizer.lr",
    "AUC, % against model.hidden",
    "AUC, % against optimizer.schedule",
]


def paged(folder: Path, page: Path) -> Page:
    """Writes and reads the page of a search."""
    write_search_html(read_search(folder), page)
    return parsed(page)


def broken(trace: dict[str, Any]) -> list[list[tuple[Any, Any]]]:
    """The pieces of a line with gaps."""
    found: list[list[tuple[Any, Any]]] = [[]]
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if x is None:
            found.append([])
        else:
            found[-1].append((x, y))
    return [piece for piece in found if piece]


def test_the_plots_hold_what_the_trials_have_come_to(tmp_path: Path) -> None:
    page = paged(small_search(tmp_path / "search"), tmp_path / "page.html")
    assert [figure.title for figure in page.figures] == TITLES
    by_trial = page.figure("AUC, % by trial")
    assert [trace["name"] for trace in by_trial.data] == [
        *("best so far", "complete", "waiting", "pruned"),
    ]
    steps = by_trial.trace("best so far")
    assert [*zip(steps["x"], steps["y"], strict=True)] == [(0, 70.0), (1, 90.0), (4, 90.0)]
    assert steps["line"]["shape"] == "hv"
    # Of the trial that has not ended the best epoch counts so far.
    assert by_trial.trace("waiting")["y"] == [95.0]
    by_epoch = page.figure("AUC, % by epoch")
    best = by_epoch.trace("best: trial0001")
    assert broken(best) == [[(n, 100 * auc) for n, auc in enumerate(CURVES[1], 1)]]
    assert broken(by_epoch.trace("complete")) == [[(1, 50), (2, 70), (3, 60), (4, 65)]]
    assert broken(by_epoch.trace("waiting")) == [[(1, 70.0), (2, 95.0)]]
    assert "trial0000<br>optimizer.lr 0.0001" in by_epoch.trace("complete")["text"][0]
    rates = page.figure("AUC, % against optimizer.lr")
    assert rates.layout["xaxis"]["type"] == "log"
    assert rates.trace("pruned")["x"] == [pytest.approx(1e-3)]
    assert page.figure("AUC, % against model.hidden").layout["xaxis"]["type"] == "linear"
    schedules = page.figure("AUC, % against optimizer.schedule")
    assert schedules.layout["xaxis"]["categoryarray"] == ["constant", "cosine"]
    assert schedules.trace("complete")["x"] == ["constant", "cosine"]


def test_settings_and_metric_are_drawn_on_parallel_axes(tmp_path: Path) -> None:
    page = paged(small_search(tmp_path / "search"), tmp_path / "page.html")
    figure = page.figure("Settings and metric")
    # 0.95 is the best and 0.4 the worst; of four values one is the best quarter.
    [best] = broken(figure.trace("best quarter"))
    assert [y for _, y in best] == pytest.approx([2 / 3, 0, 0, 1])
    lines = broken(figure.trace("the others"))
    assert [x for x, _ in lines[-1]] == [0, 1, 2, 3]
    assert [y for _, y in lines[-1]] == pytest.approx([1 / 3, 2 / 3, 0, 0])
    assert figure.layout["xaxis"]["ticktext"] == [
        "optimizer.lr<br>0.0001 to 0.1",
        "model.hidden<br>8 to 32",
        "optimizer.schedule<br>constant to cosine",
        "AUC, %<br>40 to 95",
    ]


def test_the_first_screen_names_the_best_and_what_uses_it(tmp_path: Path) -> None:
    folder = small_search(tmp_path / "my search")
    (folder / "trial0001" / "best.safetensors").touch()
    path = tmp_path / "page.html"
    page = paged(folder, path)
    text = path.read_text("utf-8")
    first = text[text.index("</h1>") : text.index('class="plots"')]
    assert (
        "Search my search: 5 trials of at most 4 epochs each of interaction models, trained on "
        "6 events of graphs (12.0 K nodes, 51.0 K edges) with DDP on 1 rank, started by torchrun; "
        "drawn by TPE, pruned by asynchronous successive halving (after 1 epoch, the best 1/3 went "
        "on), seed 7. 2 complete, 1 waiting, 1 pruned, 1 failed."
    ) in first
    assert "<span>AUC, %, best</span><b>90</b><span>trial0001</span>" in first
    assert "<b>22.00</b><span>11 epochs</span>" in first
    assert (
        "Best: trial0001, AUC, % 90, with optimizer.lr 0.0003162, model.hidden 16, "
        "optimizer.schedule cosine."
    ) in first
    weights = folder / "trial0001" / "best.safetensors"
    assert f"bigtrk evaluate '{weights}' GRAPHS" in page.texts
    [training] = [text for text in page.texts if text.startswith("bigtrk train")]
    assert training.startswith("bigtrk train '/data/my config.yaml' training.epochs=4 ")
    assert f"{LR}={json.dumps(10**-3.5)}" in training
    assert training.endswith("""'optimizer.schedule="cosine"'""")


def test_a_ratio_has_its_interval_and_an_end_of_the_bounds_is_named(tmp_path: Path) -> None:
    write_trial(tmp_path / "search", 0, [0.5])
    trial = trial_record(0, 0.9, epochs=1)  # with the lowest learning rate
    write_search(tmp_path / "search", search_record(metric="efficiency"), [trial])
    page = paged(tmp_path / "search", tmp_path / "page.html")
    low, high = (f"{100 * end:.1f}" for end in wilson(0.9, 400))
    assert f"trial0000; {low} to {high}; of 400" in page.texts
    assert (
        "At an end of the bounds: optimizer.lr, model.hidden; better values may lie beyond."
        in page.texts
    )


def test_trials_are_links_to_their_folders_from_wherever_the_page_is(tmp_path: Path) -> None:
    folder = small_search(tmp_path / "a:b #1" / "search")
    inside = paged(folder, folder / "page.html")
    assert inside.references == [f"trial000{n}/" for n in (1, 0, 2, 3, 4)]
    outside = paged(folder, tmp_path / "pages" / "page.html")
    assert outside.references[0] == "../a%3Ab%20%231/search/trial0001/"
    assert {"trial0003 failed: CUDA <b>out</b> of memory", "0.001", "pruned"} <= set(inside.texts)


def test_a_search_can_be_drawn_at_any_time(tmp_path: Path) -> None:
    folder = write_search(tmp_path / "search", search_record())
    page = paged(folder, tmp_path / "page.html")
    assert not page.figures
    assert any(text.endswith("seed 7. No trial has begun yet.") for text in page.texts)
    show_search(read_search(folder), Console(file=io.StringIO()))
    # Drawn, but the training has not begun; the study may be half-written, and is not read.
    write_search(folder, search_record(), [trial_record(0, None, state="running", epochs=0)])
    (folder / "study.journal").write_text('{"op_co')
    assert not paged(folder, tmp_path / "page.html").figures
    run = write_trial(folder, 0, [0.5, 0.6])
    with (run / "metrics.jsonl").open("a") as lines:
        lines.write('{"kind": "epoch", "epo')
    with FolderLock() as lock:
        lock.take(run)
        page = paged(folder, tmp_path / "page.html")
        assert page.figure("AUC, % by trial").trace("training")["y"] == [60.0]
    assert not (run / LOCK).exists()
    told = " ".join(page.texts)
    assert "1 training" in told
    assert "AUC, %, best so far" in told
    assert "Best so far, not trained to its end: trial0000" in told
    assert "bigtrk evaluate" not in told, "there are no weights to name"


def test_a_population_shows_who_went_on_from_whom(tmp_path: Path) -> None:
    page = paged(small_population(tmp_path / "search"), tmp_path / "page.html")
    assert [figure.title for figure in page.figures] == [
        *("AUC, % by epoch", "optimizer.lr by epoch", "AUC, % against optimizer.lr"),
    ]
    lineage = page.figure("AUC, % by epoch")
    assert broken(lineage.trace("from another's checkpoint")) == [[(2, 70.0), (3, 90.0)]]
    assert lineage.trace("from another's checkpoint")["line"]["dash"] == "dash"
    own = broken(lineage.trace("from its own checkpoint"))
    assert [(2, 45.0), (3, 90.0)] not in own
    assert [(1, 40.0), (2, 45.0)] in own
    assert len(own) == 8
    assert broken(lineage.trace("ancestry of the best")) == [[(1, 60.0), (2, 70.0), (3, 90.0)]]
    rates = page.figure("optimizer.lr by epoch")
    assert rates.layout["yaxis"]["type"] == "log"
    assert broken(rates.trace("ancestry of the best")) == [[(1, 0.01), (2, 0.01), (3, 0.0125)]]
    against = page.figure("AUC, % against optimizer.lr")
    assert against.trace("from another's checkpoint")["x"] == [0.0125]
    assert "round 3 from trial0000: trial0002" in against.data[1]["text"][0]
    told = " ".join(page.texts)
    assert "a population, synchronous, in rounds of 1 epoch, seed 7" in told
    assert "How trial0002 came about" in page.texts


@pytest.mark.parametrize("source_round", [2, 5])
def test_rounds_that_no_search_writes_end_an_ancestry(tmp_path: Path, source_round: int) -> None:
    folder = small_population(tmp_path / "search")
    result = json.loads((folder / RESULT).read_text())
    [copied] = [one for one in result["rounds"] if one["source"] is not None]
    copied["source"], copied["source_round"] = 2, source_round
    (folder / RESULT).write_text(json.dumps(result))
    page = paged(folder, tmp_path / "page.html")
    best = page.figure("AUC, % by epoch").trace("ancestry of the best")
    assert broken(best) == [[(3, 90.0)]]


def test_names_and_values_are_escaped(tmp_path: Path) -> None:
    evil = "<b onclick=x>&lt;$title</b>\x1b"
    choices = [evil, "b"]
    space = {evil: choices, "model.hidden": SPACE["model.hidden"]}
    folder = tmp_path / f"search{evil}".replace("/", "")
    trials = [
        trial_record(n, 0.1 * n, settings={evil: choices[n % 2], "model.hidden": 8 + n})
        for n in range(3)
    ]
    write_search(folder, search_record(metric=evil, space=space, given=(evil,)), trials)
    path = tmp_path / "page.html"
    page = paged(folder, path)
    assert page.tags.count("b") == 3, "those of the numbers that count"
    escaped = "&lt;b onclick=x&gt;&amp;lt;$title&lt;/b&gt;\\x1b"
    [figure] = [one for one in page.figures if "by trial" in one.title]
    assert figure.layout["title"]["text"] == f"{escaped} by trial"
    named = [one for one in page.figures if one.layout["xaxis"]["title"]["text"] == escaped]
    assert named[0].layout["xaxis"]["categoryarray"] == [escaped, "b"]
    assert "\x1b" not in path.read_text("utf-8")


def test_values_of_other_kinds_are_no_points() -> None:
    axis = Axis("x", is_log=True, ends=(1.0, 100.0))
    assert [axis.place(value) for value in (1, 10.0, 0, -1.0, True, "a", None, [1], 10**400)] == [
        *(1.0, 10.0),
        *[None] * 7,
    ]
    assert axis.share(10) == pytest.approx(0.5)
    near = Axis("x", is_log=True, ends=(1e40 * (1 - 2e-16), 1e40))
    assert near.share(1e40) is None


def test_of_very_many_trials_the_best_are_drawn_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "MOST_CURVES", 2)
    page = paged(small_search(tmp_path / "search"), tmp_path / "page.html")
    figure = page.figure("AUC, % by epoch (3 worse trials left out)")
    assert [trace["name"] for trace in figure.data] == ["waiting", "best: trial0001"]
    assert len(page.figure("AUC, % by trial").trace("complete")["x"]) == 2


def test_a_terminal_shows_the_trials_the_best_first(tmp_path: Path) -> None:
    out = io.StringIO()
    show_search(read_search(small_search(tmp_path / "search")), Console(file=out, width=200))
    told = " ".join(out.getvalue().split())
    assert "optimizer.lr: 0.0001 to 0.1 (logarithm)" in told
    assert "model.hidden: 8 to 32 in steps of 8" in told
    assert "auc, the larger the better" in told
    assert "interaction, layers 2" in told, "what is searched is no setting of the model"
    assert told.index("trial0001 complete 90 4") < told.index("trial0000 complete 70 4")
    assert "trial0004 waiting 95 2" in told


def test_programs_read_all_trials(tmp_path: Path) -> None:
    search = read_search(small_search(tmp_path / "search"))
    summary = json.loads(json.dumps(summarise_search(search), allow_nan=False))
    assert summary["best"] == 1
    assert [trial["state"] for trial in summary["trials"]] == [
        *("complete", "complete", "pruned", "failed", "waiting"),
    ]
    assert summary["trials"][4]["curve"] == [[1, 0.7], [2, 0.95]]
    assert summary["trials"][1]["settings"][LR] == pytest.approx(10**-3.5)


def test_the_command_writes_the_page_and_refuses_what_it_cannot_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = small_search(tmp_path / "search"), tmp_path / "page.html"
    command = ["bigtrk", "report", str(folder)]
    status, printed, errors = run_here([*command, "--html", str(page)], monkeypatch, capsys)
    assert (status, errors) == (0, "")
    assert "trial0001" in printed
    assert "bigtrk search: search" in page.read_text("utf-8")[:2000]
    status, printed, _ = run_here([*command, "--json"], monkeypatch, capsys)
    assert (status, json.loads(printed)["seed"]) == (0, 7)
    status, _, errors = run_here([*command, str(folder)], monkeypatch, capsys)
    assert status == 2
    assert "a search is reported alone; name one, or runs" in errors
    (folder / RESULT).write_text('{"format": 1, "metric": "auc", "trials": [{"number": -1}]}')
    status, _, errors = run_here(command, monkeypatch, capsys)
    assert status == 2
    assert "result.json: trials.0.number: Input should be greater than or equal to 0" in errors


def test_the_page_is_written_before_a_terminal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(searches, "print_result", closed)
    with pytest.raises(BrokenPipeError):
        searches.report_search([small_search(tmp_path / "search")], tmp_path / "page.html", False)
    assert 'class="plot"' in (tmp_path / "page.html").read_text("utf-8")


def test_another_folder_is_no_search(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"search\.json: no such file"):
        read_search(tmp_path)
