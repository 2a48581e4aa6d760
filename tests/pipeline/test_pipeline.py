"""A small pipeline from its command to tracks of hits without truth, judged."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from bigtrk.errors import InputError
from bigtrk.events.detectors import write_detectors
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_detectors, read_event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.events.writer import write_event, write_table
from bigtrk.graphs.storage.graph_folder import GraphFolder
from bigtrk.parallel.process_group import process_group
from bigtrk.pipeline.build import build_radius_graphs
from bigtrk.pipeline.filtering import filter_folder
from bigtrk.pipeline.options import MakingOptions
from bigtrk.pipeline.reconstruct import reconstruct_folder
from bigtrk.pipeline.stages import load_pipeline
from bigtrk.pipeline.tracks_folder import TracksMade
from bigtrk.pipeline.training.train import train_pipeline
from bigtrk.tracks.builders.trees.merge_tree_file import read_merge_tree
from bigtrk.tracks.storage.files import open_tracks
from tests.distributed.ranks import ALONE
from tests.programs import run_here
from tests.test_bad_input import one_line

EPOCHS = {"embedding": 20, "filter": 6, "classifier": 10}
SMALL: dict[str, Any] = {
    "embedding": {
        "model": {"name": "embedding", "hidden": 32, "mlp_layers": 2},
        "optimizer": {"lr": 0.01},
    },
    "filter": {"model": {"name": "mlp", "hidden": 16, "mlp_layers": 2}, "optimizer": {"lr": 0.01}},
    "classifier": {"model": {"hidden": 16, "layers": 3}, "optimizer": {"lr": 0.005}},
}


def settings() -> dict[str, Any]:
    """Makes the settings of a pipeline for events of 200 particles."""
    stages = {
        stage: {
            **content,
            "sampling": {"method": "wedges", "wedges": 2},
            "training": {"epochs": EPOCHS[stage], "class_balance": "equal"},
        }
        for stage, content in SMALL.items()
    }
    stages["embedding"]["data"] = {"node_features": ["r", "cos_phi", "sin_phi", "z", "eta"]}
    return {"validation": 2, "fakes": 0.1, **stages}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with the events that it was trained on, and others with and without truth."""
    folder = tmp_path_factory.mktemp("hits to tracks")
    simulate_folder(folder / "events", range(6), 200, seed=1, detectors=None)
    simulate_folder(folder / "others", range(10, 12), 200, seed=1, detectors=None)
    (folder / "hits").mkdir()
    for file in (folder / "others").glob("*-hits.*"):
        shutil.copy(file, folder / "hits")
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings()))
    train_pipeline(folder / "events", folder / "out", folder / "pipeline.yaml", None)
    return folder


def test_it_leaves_what_it_chose(folder: Path) -> None:
    record = json.loads((folder / "out" / "pipeline.json").read_text())
    filtered = GraphFolder(folder / "out" / "graphs" / "filtered")
    near = GraphFolder(folder / "out" / "graphs" / "radius")
    assert record["radius"] == near.record("event000000000")["radius"]
    merge_tree = read_merge_tree(folder / "out" / "merge_tree.safetensors")
    assert record["quality"]["threshold"] == merge_tree.threshold
    assert record["quality"]["fakes"] == 0.1
    assert len(record["quality"]["scan"]) > 30
    for event in filtered.events:
        before, after = near.record(event), filtered.record(event)
        assert after["edges"] < before["edges"]
        assert after["purity"] > before["purity"]
        assert after["target_efficiency"] > 0.9
        assert after["true_edges"] == before["true_edges"]


def test_hits_without_truth_become_tracks(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    def typed(*words: str | Path) -> Any:
        status, printed, _ = run_here(["bigtrk", *map(str, words)], monkeypatch, capsys)
        assert status == 0
        return json.loads(printed)

    made = typed("reconstruct", folder / "out", folder / "hits", "tracks", "--json")
    assert made["failed"] == {}
    for name in find_events(folder / "hits"):
        found = made["events"][name]
        assert found["tracks"] > 50
        assert found["hits"] == len(read_event(folder / "hits", name).hits["hit_id"])
        assert found["notes"] == []
    assert [*open_tracks(Path("tracks/submission.csv")).events] == [10, 11]
    for tracks in ("tracks", "tracks/submission.csv"):
        judged = typed("score", tracks, folder / "others", "--json")
        strict = next(
            m for m in judged["matching"] if (m["style"], m["mode"]) == ("ATLAS", "strict")
        )
        assert strict["efficiency"] > 0.6
        assert strict["fake_rate"] < 0.3


def test_another_threshold_makes_other_tracks(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = read_merge_tree(folder / "out" / "merge_tree.safetensors").threshold
    command = ["bigtrk", "reconstruct", str(folder / "out"), str(folder / "hits"), str(tmp_path)]

    def tracks(*options: str) -> int:
        status, printed, _ = run_here([*command, "--json", *options], monkeypatch, capsys)
        assert status == 0
        return sum(one["tracks"] for one in json.loads(printed)["events"].values())

    assert tracks() == tracks("--threshold", str(own))
    assert tracks("--threshold", "0.1") > tracks("--threshold", "0.9") > 0
    assert tracks("--threshold", "1") == 0
    for wrong in ("1.1", "nan"):
        status, _, errors = run_here([*command, "--threshold", wrong], monkeypatch, capsys)
        assert status == 2
        assert "threshold" in one_line(errors)


def test_a_pipeline_of_before_the_choice_of_thresholds_is_read(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    record = json.loads((out / "pipeline.json").read_text())
    del record["quality"]
    (out / "pipeline.json").write_text(json.dumps(record))
    assert load_pipeline(out).builder.threshold == load_pipeline(folder / "out").builder.threshold


@pytest.mark.parametrize("builder", ["components", "walk"])
def test_inferred_tracks_are_those_that_evaluate_judges(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    builder: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    record = json.loads((folder / "out" / "pipeline.json").read_text())
    build_radius_graphs(
        folder / "others", Path("near"), folder / "out" / "embedding", record["radius"], None
    )
    filter_folder(folder / "out" / "filter", Path("near"), Path("thin"), record["cut"], None)
    run = str(folder / "out" / "classifier")

    def strict(*words: str) -> tuple[Any, ...]:
        status, printed, _ = run_here(["bigtrk", *words, "--json"], monkeypatch, capsys)
        assert status == 0
        found = json.loads(printed)
        rows = found.get("tracks", found) if words[0] == "evaluate" else found
        [row] = [r for r in rows["matching"] if (r["style"], r["mode"]) == ("ATLAS", "strict")]
        return tuple(
            row[key] for key in ("n_particles", "n_reconstructed", "n_tracks", "n_matched")
        )

    options = ("--builder", builder, "--score-cut", "0.8")
    run_here(["bigtrk", "infer", run, "thin", "tracks", *options], monkeypatch, capsys)
    judged = strict("score", "tracks", str(folder / "others"))
    assert judged == strict("evaluate", run, "thin", "--tracks", *options)
    assert judged[1] > 0


@pytest.fixture
def evaluated(folder: Path, tmp_path: Path) -> Path:
    """A copy of the pipeline, in which evaluations are written."""
    out = tmp_path / "mine"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    return out


def test_losses_add_up_to_what_reconstructed_tracks_are_judged_to_be(
    folder: Path,
    evaluated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    mine, others = str(evaluated), str(folder / "others")

    def typed(*words: str) -> Any:
        status, printed, _ = run_here(["bigtrk", *words, "--json"], monkeypatch, capsys)
        assert status == 0
        return json.loads(printed)

    found = typed("evaluate", mine, others, "--pt-min", "0.7", "--html", "page.html")
    made = typed("reconstruct", mine, others, "tracks")
    judged = typed("score", "tracks", others, "--pt-min", "0.7")
    assert found["tracks"] == {key: judged[key] for key in ("trackml_score", "matching")}
    [strict] = [r for r in judged["matching"] if (r["style"], r["mode"]) == ("ATLAS", "strict")]
    assert sum(found["losses"].values()) == strict["n_particles"]
    assert found["losses"]["found"] == strict["n_reconstructed"] > 50
    stages = {stage["stage"]: stage for stage in found["stages"]}
    for stage in ("radius", "filter"):
        reconstructed = sum(event["edges"][stage] for event in made["events"].values())
        assert stages[stage]["edges"] == reconstructed
    assert stages["event"]["target_edges"] >= stages["radius"]["target_edges"] > 0
    assert (found["events"], found["events_left_out"]) == (2, 0)
    assert "Where particles are lost" in Path("page.html").read_text()
    again = typed("evaluate", mine, others)
    assert len([*(evaluated / "evaluations").glob("others-*Z*.json")]) == 2, "none is overwritten"
    [reported] = typed("report", mine, "--html", "report.html")["pipelines"]
    assert reported["evaluations"] == [again]
    assert "<svg" in Path("report.html").read_text()


def test_events_that_stages_were_trained_on_are_left_out(
    folder: Path,
    evaluated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last two of six trained nothing; where all were trained on, they are evaluated."""
    command = ["bigtrk", "evaluate", str(evaluated), str(folder / "events"), "--json"]
    _, printed, _ = run_here(command, monkeypatch, capsys)
    found = json.loads(printed)
    counts = ("events", "events_trained_on", "events_left_out")
    assert [found[key] for key in counts] == [2, 0, 4]
    trained = tmp_path / "trained"
    trained.mkdir()
    for file in (folder / "events").glob("event000000000-*"):
        shutil.copy(file, trained)
    status, printed, _ = run_here(
        ["bigtrk", "evaluate", str(evaluated), str(trained)], monkeypatch, capsys
    )
    assert status == 0
    assert "trained on 1 of these events" in " ".join(printed.split())


BAD_EVALUATIONS: list[tuple[list[str], dict[str, str], str]] = [
    (["hits"], {}, "has no truth, by which losses could be told; add"),
    (["hits"], {}, "or make its tracks by 'bigtrk reconstruct"),
    (["others", "--builder", "components"], {}, "a pipeline has its own track builder and cuts"),
    (["others", "--scan-cuts"], {}, "a pipeline has its own track builder and cuts"),
    (["out"], {}, "holds no events"),
    (["others"], {"RANK": "0", "WORLD_SIZE": "2"}, "one rank evaluates a pipeline"),
]


@pytest.mark.parametrize(("words", "environment", "told"), BAD_EVALUATIONS)
def test_an_evaluation_that_cannot_be_is_told_in_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    environment: dict[str, str],
    told: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    status, _, errors = run_here(["bigtrk", "evaluate", "out", *words], monkeypatch, capsys)
    assert status == 2
    assert told in one_line(errors)
    assert not (folder / "out" / "evaluations").exists()


def test_it_continues_where_it_was_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keeps what is trained, and makes what is missing, the same as before."""
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    for made in ("pipeline.json", "merge_tree.safetensors"):
        (out / made).unlink()
    # A run of before these settings came has their defaults.
    record = json.loads((out / "embedding" / "run.json").read_text())
    del record["config"]["negatives"]
    (out / "embedding" / "run.json").write_text(json.dumps(record))
    # Nothing is trained again.
    monkeypatch.setattr("bigtrk.pipeline.training.stage_training.train_logged", None)
    train_pipeline(folder / "events", out, folder / "pipeline.yaml", None)
    assert (out / "pipeline.json").read_text() == (folder / "out" / "pipeline.json").read_text()
    again, before = (
        read_merge_tree(place / "merge_tree.safetensors") for place in (out, folder / "out")
    )
    for one, other in zip(again.quality.weights, before.quality.weights, strict=True):
        assert torch.equal(one, other)


def no_checkpoint(run: Path) -> None:
    """Leaves a run as it is before its first checkpoint."""
    shutil.rmtree(run / "checkpoints")
    for file in ("model.safetensors", "config.json"):
        (run / file).unlink()


def no_model(run: Path) -> None:
    """Leaves a run as it is after its last checkpoint, before its model is written."""
    for file in ("model.safetensors", "config.json"):
        (run / file).unlink()


def half_a_model(run: Path) -> None:
    (run / "config.json").unlink()


@pytest.mark.slow  # each trains the classifier again: a quarter of a minute
@pytest.mark.parametrize("leave", [no_checkpoint, no_model, half_a_model])
def test_a_stage_that_was_stopped_is_trained(
    folder: Path, tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    leave(out / "classifier")
    train_pipeline(folder / "events", out, folder / "pipeline.yaml", None)
    before, after = (
        json.loads((place / "pipeline.json").read_text()) for place in (folder / "out", out)
    )
    assert after == before, "the same weights"


def test_a_stage_of_other_settings_or_graphs_is_refused(folder: Path, tmp_path: Path) -> None:
    out, events = tmp_path / "out", tmp_path / "events"
    shutil.copytree(folder / "out", out)
    content = settings()
    content["embedding"]["optimizer"]["lr"] = 0.02
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(content))
    told = "embedding: was trained with other settings of optimizer; remove it"
    with pytest.raises(InputError, match=told):
        train_pipeline(folder / "events", out, tmp_path / "other.yaml", None)
    shutil.copytree(folder / "events", events)
    simulate_folder(events, range(6, 7), 200, seed=1, detectors=None)
    with pytest.raises(InputError, match="embedding: was trained on other graphs than"):
        train_pipeline(events, out, folder / "pipeline.yaml", None)


def test_a_stage_trained_again_is_not_mixed_with_the_others(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    record = json.loads((out / "pipeline.json").read_text())
    record["weights"]["filter"] = "0" * 64
    (out / "pipeline.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"filter: was trained again after pipeline\.json"):
        load_pipeline(out)


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"radius_efficiency": 0.97}, "radius_efficiency: choose one of 0.95"),
    ({"classifier": {"model": {"name": "embedding"}}}, "this stage's model must classify edges"),
    ({"classifier": {"model": {"hiden": 8}}}, "classifier: unknown key 'model.hiden'"),
    ({"filter": {"data": {"train": ["x"]}}}, "filter.data.train is given by the pipeline"),
    ({"embedding": {"model": None}}, "embedding"),
    ({"fakes": 1.5}, "fakes"),
]


@pytest.mark.parametrize(("spoilt", "told"), SPOILT, ids=str)
def test_bad_settings_are_told_before_anything_is_trained(
    folder: Path, tmp_path: Path, spoilt: dict[str, Any], told: str
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump({**settings(), **spoilt}))
    with pytest.raises(InputError, match=re.escape(told)):
        train_pipeline(folder / "events", tmp_path / "out", file, None)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow  # half a minute, most of it the start of processes
def test_trainings_use_the_launcher(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    shutil.rmtree(out / "classifier")
    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    train_pipeline(folder / "events", out, folder / "pipeline.yaml", launcher)
    run = json.loads((out / "classifier" / "run.json").read_text())
    assert (run["world_size"], run["launcher"]) == (2, "torchrun")


@pytest.mark.parametrize("launcher", ["", "no-such-launcher -n 2", "deepspeed '"])
def test_a_bad_launcher_is_named(folder: Path, tmp_path: Path, launcher: str) -> None:
    with pytest.raises(InputError, match="--launcher"):
        train_pipeline(folder / "events", tmp_path / "out", folder / "pipeline.yaml", launcher)


def reconstructed(folder: Path, events: Path, out: Path) -> TracksMade:
    with process_group(ALONE):
        return reconstruct_folder(folder / "out", events, out / "tracks", MakingOptions(), ALONE)


def test_truth_is_not_read(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "others", tmp_path / "others")
    for truth in (tmp_path / "others").glob("*-truth.*"):
        truth.write_bytes(b"nonsense")
    made = [
        reconstructed(folder, events, tmp_path) for events in (folder / "hits", tmp_path / "others")
    ]
    assert made[0].tracks == made[1].tracks
    assert made[1].failed == {}


def test_events_of_one_number_are_refused(folder: Path, tmp_path: Path) -> None:
    event = read_event(folder / "hits", "event000000010")
    for name in ("event1", "event01"):
        write_event(replace(event, name=name), tmp_path / "hits")
    with pytest.raises(InputError, match="have the same number"):
        reconstructed(folder, tmp_path / "hits", tmp_path)


def test_events_with_few_hits_or_strange_ones_are_reconstructed(
    folder: Path, tmp_path: Path
) -> None:
    event = read_event(folder / "hits", "event000000010")
    few = {name: column[:300] for name, column in event.hits.items()}
    in_one_place = {**few, **{axis: np.full(300, 7.0) for axis in "xyz"}}
    foreign = {**event.hits, "module_id": event.hits["module_id"] + 100_000}
    chosen = {
        "event000000001": {name: column[:1] for name, column in event.hits.items()},
        "event000000002": in_one_place,
        "event000000003": foreign,
    }
    for name, hits in chosen.items():
        write_event(Event(name=name, hits=hits), tmp_path / "hits")
    made = reconstructed(folder, tmp_path / "hits", tmp_path)
    assert made.failed == {}
    assert made.tracks["event000000001"] == 0
    assert made.tracks["event000000003"] > 50


def test_what_is_unlike_the_training_is_noted(folder: Path) -> None:
    pipeline = load_pipeline(folder / "out")
    event = read_event(folder / "hits", "event000000010")

    def notes(hits: dict[str, Any]) -> list[str]:
        return pipeline.tracks(replace(event, hits=hits), 3)[1].notes

    def only(chosen: Any) -> dict[str, Any]:
        return {name: column[chosen] for name, column in event.hits.items()}

    assert notes(event.hits) == []
    assert notes(only(slice(0))) == ["has no hits, which makes no track"]
    assert notes(only(slice(1))) == ["has one hit, which makes no track"]
    [note] = notes(only(~np.isin(event.hits["volume_id"], (16, 18))))
    assert note == "has no hits in volumes where the training's events have some: 16, 18"
    [note] = notes({**event.hits, "module_id": event.hits["module_id"].astype(int) + 100_000})
    assert (
        f"{len(event.hits['x']):,} of {len(event.hits['x']):,} hits are in modules beyond" in note
    )


def test_an_event_without_hits_and_a_detector_of_other_modules_are_noted(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = tmp_path / "hits"
    shutil.copytree(folder / "hits", events)
    (events / "event000000001-hits.csv").write_text("hit_id,x,y,z,volume_id,layer_id,module_id\n")
    write_detectors(events)
    detectors = read_detectors(events)
    kept = detectors["volume_id"] != 8
    write_table({n: c[kept] for n, c in detectors.items()}, events / "detectors.csv", True)
    command = ["bigtrk", "reconstruct", str(folder / "out"), str(events), str(tmp_path / "tracks")]
    status, printed, errors = run_here([*command, "--json"], monkeypatch, capsys)
    made = json.loads(printed)
    assert (status, made["failed"]) == (0, {})
    empty = made["events"]["event000000001"]
    assert (empty["hits"], empty["tracks"]) == (0, 0)
    assert "event000000001: has no hits, which makes no track" in errors
    [note] = made["events"]["event000000010"]["notes"]
    assert "modules that detectors.csv does not name, first module" in note
    assert [*open_tracks(tmp_path / "tracks").events] == [1, 10, 11]
    (events / "detectors.csv.gz").write_bytes(b"volume")
    status, printed, errors = run_here([*command, "--json"], monkeypatch, capsys)
    assert status == 0
    assert "detectors.csv.gz: is no gzip file" in errors
    assert json.loads(printed)["events"]["event000000010"]["notes"] == []


def test_too_many_pairs_shrink_the_radius(folder: Path) -> None:
    pipeline = load_pipeline(folder / "out")
    event = read_event(folder / "hits", "event000000010")
    tracks, passage = pipeline.tracks(event, 3)
    assert passage.notes == []
    few = replace(pipeline, most_edges=passage.edges["radius"] // 2)
    _, reduced = few.tracks(event, 3)
    assert 0.8 * few.most_edges < reduced.edges["radius"] <= few.most_edges
    assert re.fullmatch(r"joins hits within .* instead of .*, where there are .*", reduced.notes[0])
    together = replace(event, hits={**event.hits, **{a: np.ones(len(tracks)) for a in "xyz"}})
    none, alone = few.tracks(together, 3)
    assert (none == -1).all()
    assert alone.edges["radius"] == 0
    assert "joins hits within 0 instead of" in alone.notes[0]


def test_a_hit_beyond_float32_is_named(folder: Path) -> None:
    event = read_event(folder / "hits", "event000000010")
    x = event.hits["x"].astype(np.float64)
    x[4] = 1e300
    told = f"hit {event.hits['hit_id'][4]} has no place in the embedding"
    with pytest.raises(InputError, match=told):
        load_pipeline(folder / "out").tracks(replace(event, hits={**event.hits, "x": x}), 3)


def test_a_failed_event_is_named_and_the_others_are_done(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "hits", tmp_path / "hits")
    first = next((tmp_path / "hits").glob("event000000010-hits.*"))
    first.write_bytes(b"not a table")
    made = reconstructed(folder, tmp_path / "hits", tmp_path)
    assert [*made.failed] == ["event000000010"]
    assert [*made.tracks] == ["event000000011"]


@pytest.mark.parametrize(
    "stage",
    [
        *("embedding", "filter", "classifier", "merge_tree.safetensors"),
        *("filter/model.safetensors", "classifier/config.json"),
    ],
)
def test_a_missing_stage_is_named(folder: Path, tmp_path: Path, stage: str) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    if (out / stage).is_dir():
        shutil.rmtree(out / stage)
    else:
        (out / stage).unlink()
    with pytest.raises(InputError, match=f"its stage {re.escape(stage)}.* is missing; finish"):
        load_pipeline(out)


def test_a_pipeline_of_another_version_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    record = json.loads((out / "pipeline.json").read_text())
    (out / "pipeline.json").write_text(json.dumps({**record, "format": 2}))
    with pytest.raises(InputError, match="update bigtrk"):
        load_pipeline(out)
    del record["radius"]
    (out / "pipeline.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="key 'radius' is missing; finish 'bigtrk pipeline train"):
        load_pipeline(out)
