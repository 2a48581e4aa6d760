"""The report of a search, finished or not: page, terminal and JSON, against small records."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bigtrk.disk.folder_lock import LOCK, FolderLock
from bigtrk.records.studies import RESULT, read_search
from bigtrk.reports.page import write_page
from bigtrk.reports.search import search_report, summarise_search
from bigtrk.reports.terminal import show
from tests.programs import Run
from tests.reports.pages import Page, parsed
from tests.reports.search_folders import (
    LR,
    search_record,
    small_population,
    small_search,
    trial_record,
    write_search,
    write_trial,
)


def paged(folder: Path, page: Path) -> Page:
    """Writes and reads the page of a search."""
    write_page(search_report(read_search(folder)), page)
    return parsed(page)


def test_the_first_screen_names_the_best_and_what_uses_it(tmp_path: Path) -> None:
    folder = small_search(tmp_path / "my search")
    (folder / "trial0001" / "best.safetensors").touch()
    path = tmp_path / "page.html"
    page = paged(folder, path)
    text = path.read_text("utf-8")
    first = text[text.index("</h1>") : text.index('class="plots"')]
    assert (
        "5 trials, drawn by TPE, seed 7; after 1, 3, ... epochs the best 1/3 go on. "
        "2 complete, 1 waiting, 1 pruned, 1 failed."
    ) in first
    assert "<span>AUC, %, best</span><b>90</b><span>trial0001</span>" in first
    assert "<b>22.00</b><span>11 epochs</span>" in first
    assert (
        "Best: trial0001 with optimizer.lr 0.0003162, model.hidden 16, "
        "optimizer.schedule cosine. AUC: 90 %."
    ) in first
    weights = folder / "trial0001" / "best.safetensors"
    assert f"bigtrk evaluate '{weights}' GRAPHS" in page.texts
    [training] = [text for text in page.texts if text.startswith("bigtrk train")]
    assert training.startswith("bigtrk train '/data/my config.yaml' training.epochs=4 ")
    assert f"{LR}={json.dumps(10**-3.5)}" in training
    assert training.endswith("""'optimizer.schedule="cosine"'""")
    assert f"optuna-dashboard '{folder}/study.log'" in page.texts
    dots = page.figure("AUC, % by trial")
    assert [trace["name"] for trace in dots.data] == ["complete", "waiting", "pruned"]
    # Of the trial that has not ended the best epoch counts so far.
    assert dots.trace("waiting")["y"] == [95.0]
    assert {"trial0003 failed: CUDA <b>out</b> of memory", "0.001", "pruned"} <= set(page.texts)


def test_a_search_can_be_drawn_at_any_time(tmp_path: Path) -> None:
    folder = write_search(tmp_path / "search", search_record())
    page = paged(folder, tmp_path / "page.html")
    assert not page.figures
    assert any(text.endswith("go on. No trial has begun yet.") for text in page.texts)
    show(search_report(read_search(folder)), Console(file=io.StringIO()))
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


def test_a_population_is_a_search_of_rounds(tmp_path: Path) -> None:
    page = paged(small_population(tmp_path / "search"), tmp_path / "page.html")
    told = " ".join(page.texts)
    assert "a population (every 1" in told
    assert "Best: trial0002 with optimizer.lr 0.0125. AUC: 90 %." in told
    assert "optuna-dashboard" not in told, "it has no study"


def test_a_terminal_shows_the_trials_the_best_first(tmp_path: Path) -> None:
    out = io.StringIO()
    search = read_search(small_search(tmp_path / "search"))
    show(search_report(search), Console(file=out, width=200))
    told = " ".join(out.getvalue().split())
    assert "optimizer.lr 0.0001 to 0.1 on a log scale, model.hidden 8 to 32 in steps of 8" in told
    assert "auc, the larger the better" in told
    assert "interaction, layers 2" in told, "what is searched is no setting of the model"
    assert told.index("trial0001 complete 90 4") < told.index("trial0000 complete 70 4")
    assert "trial0004 waiting 95 2" in told


def test_programs_read_all_trials(tmp_path: Path) -> None:
    search = read_search(small_search(tmp_path / "search"))
    summary = json.loads(json.dumps(summarise_search(search), allow_nan=False))
    assert summary["best"] == 1
    assert [trial["state"] for trial in summary["trials"]] == [
        *("complete", "complete", "pruned", "failed", "waiting")
    ]
    assert summary["trials"][4]["curve"] == [[1, 0.7], [2, 0.95]]
    assert summary["trials"][1]["settings"][LR] == pytest.approx(10**-3.5)


def test_the_command_writes_the_page_and_refuses_what_it_cannot_show(
    tmp_path: Path, run_program: Run
) -> None:
    folder, page = small_search(tmp_path / "search"), tmp_path / "page.html"
    command = ["bigtrk", "report", str(folder)]
    status, printed, errors = run_program([*command, "--html", str(page)])
    assert (status, errors) == (0, "")
    assert "trial0001" in printed
    assert "bigtrk search: search" in page.read_text("utf-8")[:2000]
    status, printed, _ = run_program([*command, "--json"])
    assert (status, json.loads(printed)["seed"]) == (0, 7)
    status, _, errors = run_program([*command, str(folder)])
    assert status == 2
    assert "a search is shown without other folders; name only one" in errors
    (folder / RESULT).write_text('{"format": 1, "metric": "auc", "trials": [{"number": -1}]}')
    status, _, errors = run_program(command)
    assert status == 2
    assert "result.json: trials.0.number: Input should be greater than or equal to 0" in errors
