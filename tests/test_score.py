"""`bigtrk score` as it is typed, on the real event 1000 and on files of others."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigtrk.tracks.files import write_parquet_submission, write_submission, write_tracks
from tests.programs import Run, output_of, refusal_of
from tests.test_bad_input import one_line
from tests.tracks.judged_events import (
    FIRST,
    FIRST_SCORE,
    FIRST_TRACKS,
    SECOND,
    columns,
    write_events,
)


@pytest.mark.usefixtures("workdir")
def test_event_1000_from_another_folder(testdata: Path, run_program: Run) -> None:
    """Tracks of particles that lack every second hit at z above 0, counted by pandas."""
    data = testdata / "data/trackml_event1000"
    hits, truth, particles = (
        pd.read_csv(data / f"event000001000-{name}.csv.gz")
        for name in ("hits", "truth", "particles")
    )
    hits = hits[["hit_id", "z"]].merge(truth[["hit_id", "particle_id"]], on="hit_id")
    hits["kept"] = (hits.particle_id != 0) & ~((hits.z > 0) & (hits.hit_id % 2 == 0))
    track_id = np.where(hits.kept, hits.particle_id, -1)
    write_tracks(Path("mine"), "event000001000", hits.hit_id.to_numpy(), track_id)

    text = output_of(run_program(["bigtrk", "score", "mine", str(data)]))
    assert text.startswith("Tracks of event000001000, 104 K hits\n")
    assert "TrackML score unknown" in text
    command = ["bigtrk", "score", "mine", str(data), "--json"]
    found = json.loads(run_program(command)[1])

    made = hits[hits.particle_id != 0].groupby("particle_id").kept.agg(["size", "sum"])
    pt = np.hypot(particles.px, particles.py).set_axis(particles.particle_id)
    wanted = (made["size"] >= 3) & (pt.reindex(made.index) >= 1)
    long = made["sum"] >= 3
    most = long & (2 * made["sum"] > made["size"])
    counts = {
        "ATLAS": (wanted & long, long),
        "one_way": (wanted & most, long),
        "two_way": (wanted & most, most),
    }
    assert len(found["matching"]) == 6
    for match in found["matching"]:
        reconstructed, matched = counts[match["style"]]
        assert match["n_particles"] == wanted.sum() > 1000
        assert match["n_reconstructed"] == reconstructed.sum() < wanted.sum()
        assert (match["n_tracks"], match["n_matched"]) == (long.sum(), matched.sum())


@pytest.mark.usefixtures("workdir")
def test_options_and_a_submission(run_program: Run) -> None:
    write_events(Path("events"))
    write_submission(Path("mine.csv"), [(FIRST, *columns(FIRST_TRACKS))])
    command = "bigtrk score mine.csv events --pt-min 3 --hits-min 4 --matching-fraction 0.7 --json"
    found = json.loads(run_program(command.split())[1])
    assert (found["pt_min"], found["min_hits"], found["matching_fraction"]) == (3, 4, 0.7)
    assert found["trackml_score"] == FIRST_SCORE
    assert found["events_without_tracks"] == 1
    assert found["matching"][0]["n_particles"] == 0
    assert found["matching"][0]["n_tracks"] == 1


# Readers refuse more (tests/tracks).
BAD_ROWS = {
    "21,1,0\n21,2,none\n": "row 3: track_id is 'none', not an integer",
    "21,1,0\n-5,2,0\n": "row 3: these are tracks of event -5",
    "21,1,0\n21,99,1\n": "row 3: hit 99 is not in the",
}


@pytest.mark.parametrize("rows", BAD_ROWS)
def test_files_of_others_end_in_one_line(rows: str, tmp_path: Path, run_program: Run) -> None:
    events, tracks = write_events(tmp_path / "events"), tmp_path / "mine.csv"
    tracks.write_text("event_id,hit_id,track_id\n" + rows)
    command = ["bigtrk", "score", str(tracks), str(events)]
    assert f"{tracks}, {BAD_ROWS[rows]}" in one_line(refusal_of(run_program(command)))


@pytest.mark.usefixtures("workdir")
def test_the_public_task_beside_the_strict_metrics(run_program: Run) -> None:
    """The second of two events is left out: no public metric but the last one minds."""
    write_events(Path("events"))
    first = (21, *columns(FIRST_TRACKS), np.array([7, 7, 7, 0, 0, 0, 0, 0]))
    write_parquet_submission(Path("mine.parquet"), [first], claimed=True)
    command = ["bigtrk", "score", "mine.parquet", "events", "--task", "colliderml"]
    found = json.loads(run_program([*command, "--json"])[1])
    # Track 0 has 3 of the 4 hits of particle 7 and 1 of 8, track 5 two of particle 8 and noise,
    # track -1 noise. Particle 8 and noise are in two tracks. Hit 4, of weight 1/8, is not listed.
    correct = FIRST_SCORE + 0
    # Both events have particles 7 and 8, whose ids the package takes for two.
    both = {"trackml_eff": correct / (1 - 0.125), "fake_rate": 0, "physics_eff_pt1": 1 / 2}
    assert found["colliderml"] == {
        "submitted": {**both, "dup_rate": 2 / 3},
        "in_tracks": {**both, "dup_rate": 1 / 3},
    }
    assert found["trackml_score"] == FIRST_SCORE / 2
    assert [event["event"] for event in found["events"]] == [FIRST, SECOND]
    assert found["events_without_tracks"] == 1
    strict = found["matching"][1]
    assert (strict["style"], strict["mode"]) == ("ATLAS", "strict")
    assert (strict["n_particles"], strict["n_reconstructed"]) == (3, 2)
    text = output_of(run_program(command))
    assert text.startswith("ColliderML's tracking task, its own metrics\n")
    assert "1 of the events are not in the submission, and judged" in text
    without = json.loads(run_program([*command[:4], "--json"])[1])
    assert without["colliderml"] is None
    assert [event["event"] for event in without["events"]] == [FIRST]
