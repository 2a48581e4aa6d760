"""The card of a model: what it says is what records say, and no name is markup."""

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

import bigtrk
from bigtrk.records.evaluation import write_evaluation
from bigtrk.records.metrics import EmbeddingMetrics, Neighbourhood
from bigtrk.records.record import write_record
from bigtrk.records.run import BEST, BestRecord, CodeRecord, DataRecord
from bigtrk.records.run_folder import read_run, read_run_record, write_run_record
from bigtrk.reports.figures import wilson
from bigtrk.reports.model_card import CARD, escaped, model_card, refresh_card
from tests.reports.run_folders import (
    MakeRun,
    binned_evaluation_record,
    epoch_record,
    evaluation_record,
    run_record,
)

ROOT = Path(bigtrk.__file__).parents[1]
FINISHED = datetime(2026, 11, 22, 6, 0, 0, tzinfo=UTC)
EVIL = "</script><b>x</b> [a](http://evil) ![i](//e) *s* _e_ `c` | ~~d~~ \\ &amp; # www.e.org a@b.c"


def parsed(card: str) -> list[Token]:
    """Reads Markdown as its readers do, block by block."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(card)


def shown(card: str) -> str:
    """Returns the text that a reader sees, a block to a line."""
    return "\n".join(
        "".join(part.content for part in block.children) if block.children else block.content
        for block in parsed(card)
    )


def ended(**changes: Any) -> dict[str, Any]:
    """Returns the entries of a record whose training has ended."""
    return {"ended": "epochs", "finished": FINISHED, **changes}


def test_a_card_says_what_the_records_say(make_run: MakeRun) -> None:
    config = {
        "data": {
            "train": ["/data/graphs"],
            "node_features": ["r", "phi"],
            "edge_features": ["dr", "my_module:slope"],
        },
        "model": {"name": "interaction", "hidden": 64},
        "target": {"pt_min": 1.0, "hits_min": 3},
        "training": {"epochs": 3, "seed": 7, "loss": "focal"},
        "optimizer": {"lr": 0.005},
    }
    data = DataRecord(
        train_events=6,
        validation_events=2,
        sources=("trackml",),
        edge_efficiency=0.97,
        target_efficiency=0.985,
    )
    record = run_record(config=config, data=data, **ended())
    told = shown(
        model_card(read_run(make_run(record=record, evaluation=binned_evaluation_record())))
    )
    low, high = (f"{100 * end:.1f}" for end in wilson(0.9, 120))
    for text in (
        "Model card: run 0001",
        "graphs built from the formats: trackml",
        ": pt_min 1, hits_min 3",
        ": r, phi",
        ": dr, my_module:slope",
        "epochs 3, seed 7, loss focal",
        "lr 0.005",
        "Validation after epoch 3",
        "Evaluation on 2 events of /data/graphs",
        f"{low} to {high}; of 120",
        "97.00 % of the true edges and 98.50 % of those of particles above 1 GeV",
        "Losses in 100 particles: the graph 2.0, the model 23.0",
        "Tested in pT, GeV: 1 to 2 (80), 4 to 8 (20).",
        "Tested in eta: -1 to 1 (100).",
        "Data: not stated in the folders of graphs.",
        "2026-11-22 06:00 UTC",
    ):
        assert text in told, text
    assert "not evaluated" not in told
    assert "Tested in hits" not in told


def test_what_is_not_known_is_left_out_or_said(make_run: MakeRun) -> None:
    record = run_record(config={}, data=DataRecord(train_events=4), **ended(finished=None))
    told = shown(model_card(read_run(make_run(record=record, lines=[]))))
    for text in ("It was neither validated nor evaluated", "not known what", "None is known."):
        assert text in told
    for label in ("optimizer", "graphs built from", "features of hits", "written", "validated on"):
        assert f"{label}:" not in told
    told = shown(model_card(read_run(make_run("validated", record=run_record(**ended())))))
    assert "It was not evaluated" in told
    assert "on events by which settings may have been chosen" in told


@pytest.mark.parametrize(
    ("folder", "validated", "told"),
    [("/data/graphs", 2, True), ("/data/other", 2, False), ("/data/graphs", 0, False)],
)
def test_an_evaluation_on_validation_events_says_so(
    make_run: MakeRun, folder: str, validated: int, told: bool
) -> None:
    record = run_record(
        config={"data": {"train": ["/data/graphs"]}},
        data=DataRecord(train_events=4, validation_events=validated),
        **ended(),
    )
    run = make_run(record=record, evaluation=evaluation_record(data=folder))
    assert ("settings may have been chosen by them" in shown(model_card(read_run(run)))) == told


def test_evaluations_of_other_weights_are_not_the_models(make_run: MakeRun) -> None:
    run = make_run(
        record=run_record(**ended()), evaluation=evaluation_record(data="/a/checkpoint", step=4)
    )
    before = FINISHED.replace(hour=5)
    write_evaluation(run, evaluation_record(data="/a/earlier", made=before))
    told = shown(model_card(read_run(run)))
    assert "Evaluation on" not in told
    assert "It was not evaluated" in told
    write_evaluation(run, evaluation_record(data="/a/best", weights="best.safetensors"))
    told = shown(model_card(read_run(run)))
    assert "Evaluation on 2 events of /a/best" in told
    assert "Made 2026-11-22, with the weights of best.safetensors." in told


def test_files_that_are_there_are_named(make_run: MakeRun) -> None:
    run = make_run(record=run_record(**ended()))
    assert "best.safetensors" not in model_card(read_run(run))
    best = BestRecord(metric="auc", value=0.9, epoch=1, step=6, checkpoint="step-6")
    write_record(run / BEST, best)
    for name in ("best.safetensors", "averaged.safetensors"):
        (run / name).touch()
    told = shown(model_card(read_run(run)))
    assert "best.safetensors: those of epoch 2, the best in auc" in told
    assert "averaged.safetensors" in told


def test_an_embedding_has_its_own_metrics_and_command(make_run: MakeRun) -> None:
    at = {"98": Neighbourhood(radius=0.1, edges=2000, efficiency=0.97)}
    epoch = epoch_record(0, validation=None, embedding=EmbeddingMetrics(loss=0.5, at=at))
    record = run_record(config={"model": {"name": "embedding"}}, **ended())
    told = shown(model_card(read_run(make_run(record=record, lines=[epoch]))))
    assert "bigtrk build EVENTS GRAPHS --embedding ." in told
    assert "load_model" not in told
    assert "98 %" in told
    assert "embeds hits" in told


def test_code_of_users_is_named(make_run: MakeRun) -> None:
    code = {"mine.model:Net": CodeRecord(source="mine.py"), "no name\n```": CodeRecord(source="x")}
    told = shown(model_card(read_run(make_run(record=run_record(code=code, **ended())))))
    assert "bigtrk.load_model(\".\", code=['mine.model'])" in told
    assert "bigtrk infer . GRAPHS TRACKS --code mine.model" in told
    assert "no name" not in told.partition("Use")[2]


def test_names_are_no_markup(make_run: MakeRun) -> None:
    config = {"model": {"name": EVIL}, "data": {"train": [EVIL], "node_features": [EVIL, "a\nb"]}}
    record = run_record(launcher=EVIL, config=config, **ended())
    name = EVIL.replace("/", "-")
    run = make_run(name, record=record, evaluation=evaluation_record(data=f"/d/{EVIL}"))
    card = model_card(read_run(run))
    blocks = parsed(card)
    kinds = {token.type for block in blocks for token in (block, *(block.children or ()))}
    assert not kinds & {
        *("html_block", "html_inline", "link_open", "image", "em_open", "s_open", "code_inline")
    }
    lines = shown(card)
    assert f"Model card: run {name}" in lines
    assert f"events of /d/{EVIL}" in lines
    assert "a\\nb" in lines
    columns = [line.count("|") - line.count("\\|") for line in card.split("\n") if line[:1] == "|"]
    assert set(columns) == {4}


@pytest.mark.parametrize("text", ["http://evil.org", "HTTPS://evil.org", "www.evil.org", "a@b.org"])
def test_addresses_are_no_links(text: str) -> None:
    """Text that GitHub would make a link of is written so that it does not."""
    assert not re.search(r"://|www\.|@", escaped(text), re.IGNORECASE)
    assert shown(escaped(text)).strip() == text


def test_a_card_is_written_once_a_run_has_ended_and_what_prevents_it_is_said(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run()
    refresh_card(run)
    assert not (run / CARD).exists()
    write_run_record(run, read_run_record(run).model_copy(update=ended()))
    refresh_card(run)
    assert (run / CARD).read_text("utf-8") == model_card(read_run(run))
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
    assert capsys.readouterr() == ("", "")
    (run / "run.json").write_text("{")
    refresh_card(run)
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{run / CARD}: could not be written" in told


def test_citation_and_licence_are_those_of_the_project(make_run: MakeRun) -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    told = shown(model_card(read_run(make_run(record=run_record(**ended())))))
    [author] = cited["authors"]
    assert f"{author['name']}: {cited['title']}, version " in told
    assert f"bigtrk, which made and loads them: {cited['license']}." in told
    assert project["license"] == cited["license"]
    for reference in cited["references"]:
        [line] = [line for line in told.splitlines() if line.endswith(f": {reference['title']}")]
        for author in reference["authors"]:
            assert f"{author['given-names'][0]}. {author['family-names']}" in line
