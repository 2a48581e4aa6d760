"""Hits without truth become tracks."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigtrk.errors import InputError
from bigtrk.events.event import Event
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.trackml import write_event
from bigtrk.parallel.process_group import process_group
from bigtrk.pipeline.graphs import build_radius_graphs, filter_folder
from bigtrk.pipeline.options import MakingOptions
from bigtrk.pipeline.reconstruct import TracksMade, reconstruct_folder
from bigtrk.pipeline.stages import load_pipeline
from bigtrk.tracks.builders.merge_tree import read_merge_tree
from bigtrk.tracks.files import open_tracks
from tests.distributed.ranks import ALONE
from tests.pipeline.small_pipeline import Typed
from tests.programs import Run, refusal_of
from tests.test_bad_input import one_line


@pytest.mark.usefixtures("workdir")
def test_hits_without_truth_become_tracks(folder: Path, typed: Typed) -> None:
    made = typed("reconstruct", folder / "out", folder / "hits", "tracks")
    assert made["failed"] == {}
    for name in find_events(folder / "hits"):
        found = made["events"][name]
        assert found["tracks"] > 50
        assert found["hits"] == len(read_event(folder / "hits", name).hits["hit_id"])
        assert found["notes"] == []
    assert [*open_tracks(Path("tracks/submission.csv")).events] == [10, 11]
    for tracks in ("tracks", "tracks/submission.csv"):
        judged = typed("score", tracks, folder / "others")
        [strict] = [m for m in judged["matching"] if (m["style"], m["mode"]) == ("ATLAS", "strict")]
        assert strict["efficiency"] > 0.6
        assert strict["fake_rate"] < 0.3


def test_another_threshold_makes_other_tracks(
    folder: Path, typed: Typed, tmp_path: Path, run_program: Run
) -> None:
    own = read_merge_tree(folder / "out" / "merge_tree.safetensors").threshold
    command = ["reconstruct", str(folder / "out"), str(folder / "hits"), str(tmp_path)]

    def tracks(*options: str) -> int:
        return sum(one["tracks"] for one in typed(*command, *options)["events"].values())

    assert tracks() == tracks("--threshold", str(own))
    assert tracks("--threshold", "0.1") > tracks("--threshold", "0.9") > 0
    assert tracks("--threshold", "1") == 0
    for wrong in ("1.1", "nan"):
        errors = refusal_of(run_program(["bigtrk", *command, "--threshold", wrong]))
        assert "threshold" in one_line(errors)


@pytest.mark.usefixtures("workdir")
def test_inferred_tracks_are_those_that_evaluate_judges(folder: Path, typed: Typed) -> None:
    record = json.loads((folder / "out" / "pipeline.json").read_text())
    near, thin, out = Path("near"), Path("thin"), folder / "out"
    build_radius_graphs(folder / "others", near, out / "embedding", record["radius"], None)
    filter_folder(out / "filter", near, thin, record["cut"], None)
    run = str(folder / "out" / "classifier")

    def strict(*words: str) -> tuple[Any, ...]:
        found = typed(*words)
        rows = found.get("tracks", found) if words[0] == "evaluate" else found
        [row] = [r for r in rows["matching"] if (r["style"], r["mode"]) == ("ATLAS", "strict")]
        counts = ("n_particles", "n_reconstructed", "n_tracks", "n_matched")
        return tuple(row[key] for key in counts)

    options = ("--builder", "walk", "--score-cut", "0.8")
    typed("infer", run, "thin", "tracks", *options)
    judged = strict("score", "tracks", str(folder / "others"))
    assert judged == strict("evaluate", run, "thin", "--tracks", *options)
    assert judged[1] > 0


def reconstructed(folder: Path, events: Path, out: Path) -> TracksMade:
    with process_group(ALONE):
        return reconstruct_folder(folder / "out", events, out / "tracks", MakingOptions(), ALONE)


def test_events_of_few_or_strange_hits_are_reconstructed(folder: Path, tmp_path: Path) -> None:
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


def test_events_without_hits_have_no_tracks(folder: Path, tmp_path: Path, run_program: Run) -> None:
    events = tmp_path / "hits"
    shutil.copytree(folder / "hits", events)
    (events / "event000000001-hits.csv").write_text("hit_id,x,y,z,volume_id,layer_id,module_id\n")
    command = ["bigtrk", "reconstruct", str(folder / "out"), str(events), str(tmp_path / "tracks")]
    (tmp_path / "tracks").mkdir()
    for kind in ("tracks", "parameters"):
        (tmp_path / "tracks" / f"event000000001-{kind}.parquet").touch()
    status, printed, told = run_program([*command, "--json"])
    assert "tracks: replacing the tracks of 1 event that were there" in told
    made = json.loads(printed)
    assert (status, made["failed"]) == (0, {})
    empty = made["events"]["event000000001"]
    assert (empty["hits"], empty["tracks"]) == (0, 0)
    assert [*open_tracks(tmp_path / "tracks").events] == [1, 10, 11]
    assert not [*(tmp_path / "tracks").glob("*-parameters.*")], "of other tracks"


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
    told = f"the embedding of hit {event.hits['hit_id'][4]} is NaN"
    with pytest.raises(InputError, match=told):
        load_pipeline(folder / "out").tracks(replace(event, hits={**event.hits, "x": x}), 3)


def test_a_failed_event_is_named_and_the_others_are_done(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "hits", tmp_path / "hits")
    first = next((tmp_path / "hits").glob("event000000010-hits.*"))
    first.write_bytes(b"not a table")
    made = reconstructed(folder, tmp_path / "hits", tmp_path)
    assert [*made.failed] == ["event000000010"]
    assert [*made.tracks] == ["event000000011"]
