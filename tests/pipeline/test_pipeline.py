"""A small pipeline from its command: what its training leaves, goes on from and refuses."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from bigtrk.errors import InputError
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.pipeline.stages import load_pipeline
from bigtrk.pipeline.training import train_pipeline
from bigtrk.tracks.builders.merge_tree import read_merge_tree
from tests.pipeline.small_pipeline import FEW_STEPS, settings


def test_it_leaves_what_it_chose(folder: Path) -> None:
    record = json.loads((folder / "out" / "pipeline.json").read_text())
    filtered, near = (GraphFolder(folder / "out/graphs" / name) for name in ("filtered", "radius"))
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


@FEW_STEPS
def test_it_continues_where_it_was_left(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keeps what is trained, and makes what is missing, the same as before."""
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    for made in ("pipeline.json", "merge_tree.safetensors"):
        (out / made).unlink()
    # Nothing is trained again.
    monkeypatch.setattr("bigtrk.pipeline.training.train_logged", None)
    train_pipeline(folder / "events", out, folder / "pipeline.yaml", None)
    told = capfd.readouterr().err
    assert "scoring events: 2/2\nchoosing the threshold: 1/2\nchoosing the threshold: 2/2" in told
    assert (out / "pipeline.json").read_text() == (folder / "out" / "pipeline.json").read_text()
    again, before = (read_merge_tree(a / "merge_tree.safetensors") for a in (out, folder / "out"))
    for one, other in zip(again.quality.weights, before.quality.weights, strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow  # it trains the classifier again: a quarter of a minute
@FEW_STEPS
def test_a_stage_that_was_stopped_is_trained(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out)
    shutil.rmtree(out / "classifier" / "checkpoints")
    for file in ("model.safetensors", "config.json"):
        (out / "classifier" / file).unlink()
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
    told = "embedding: was trained with other settings of optimizer; remove .*embedding to"
    with pytest.raises(InputError, match=told):
        train_pipeline(folder / "events", out, tmp_path / "other.yaml", None)
    shutil.copytree(folder / "events", events)
    simulate_folder(events, range(6, 7), 200, seed=1, detectors=None)
    with pytest.raises(InputError, match="embedding: was trained on other graphs than"):
        train_pipeline(events, out, folder / "pipeline.yaml", None)


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"radius_efficiency": 0.97}, "radius_efficiency must be one of 0.95"),
    ({"classifier": {"model": {"name": "embedding"}}}, "needs a model that classifies edges"),
    ({"classifier": {"model": {"hiden": 8}}}, "classifier: unknown key 'model.hiden'"),
    ({"filter": {"data": {"train": ["x"]}}}, "filter.data.train is set by bigtrk"),
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


def changed(**content: Any) -> Callable[[Path], None]:
    """Changes pipeline.json; None removes a key."""

    def change(out: Path) -> None:
        record = {**json.loads((out / "pipeline.json").read_text()), **content}
        kept = {key: value for key, value in record.items() if value is not None}
        (out / "pipeline.json").write_text(json.dumps(kept))

    return change


BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (lambda out: shutil.rmtree(out / "embedding"), "file embedding.* is missing; run 'bigtrk"),
    (
        lambda out: (out / "classifier/config.json").unlink(),
        r"file classifier/config\.json is missing; run 'bigtrk",
    ),
    (changed(format=2), "update bigtrk"),
    (changed(radius=None), "key 'radius' is missing; run 'bigtrk pipeline train"),
    (changed(weights={"filter": "0" * 64}), r"was trained again after pipeline\.json"),
]


@pytest.mark.parametrize(("change", "told"), BROKEN, ids=[told for _, told in BROKEN])
def test_a_pipeline_that_is_not_whole_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], told: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder / "out", out, ignore=shutil.ignore_patterns("graphs"))
    change(out)
    with pytest.raises(InputError, match=told):
        load_pipeline(out)
