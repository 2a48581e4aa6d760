"""Hits of a ColliderML sample become tracks, which its truth judges."""

import json
from pathlib import Path
from typing import Any

import pytest

from bigtrk.events.event import EventFormat
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.production import simulate_folder
from tests.distributed.pipelines import write_pipeline
from tests.programs import run_here


def test_tracks_of_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with truth, which is not read, and without, from where the sample is downloaded to;
    the pipeline is one that nobody trained.
    """
    monkeypatch.chdir(tmp_path)

    def typed(*words: str) -> Any:
        status, printed, error = run_here(["bigtrk", *words, "--json"], monkeypatch, capsys)
        assert status == 0, error
        return json.loads(printed)

    for name, with_truth in (("whole", True), ("alone", False)):
        simulate_folder(Path(name), range(2), 60, 3, None, with_truth, EventFormat.COLLIDERML)
    Path("alone/tracker_hits").rename("toy_pu200_tracker_hits")
    write_pipeline(Path("pipeline"), read_event(Path("whole"), "event000000000"))
    for sample, tracks in (("whole", "tracks"), ("toy_pu200", "tracks_alone")):
        made = typed("reconstruct", "pipeline", sample, tracks)
        assert made["failed"] == {}
        hits = [len(read_event(Path("whole"), name).hits["x"]) for name in made["events"]]
        assert [found["hits"] for found in made["events"].values()] == hits
    for name in made["events"]:
        file = f"{name}-tracks.parquet"
        assert Path("tracks", file).read_bytes() == Path("tracks_alone", file).read_bytes()
    judged = typed("score", "tracks", "whole")
    assert len(judged["events"]) == 2
    assert judged["trackml_score"] is None
    assert all(found["efficiency"] is not None for found in judged["matching"])
