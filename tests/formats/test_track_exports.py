"""Tracks for other software: `bigtrk export tracks` and `bigtrk submit`, read again by pandas."""

import csv
import gzip
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from colliderml.tasks.tracking.task import TrackingTask

from bigtrk.tracks.files import open_tracks, write_submission, write_tracks
from tests.programs import Run, output_of, refusal_of
from tests.test_bad_input import one_line
from tests.tracks.judged_events import (
    FIRST,
    FIRST_TRACKS,
    SECOND,
    SECOND_TRACKS,
    columns,
    write_events,
)

# Hit 4 of the first event is listed nowhere, hit 8 belongs to track 5.
FIRST_ROWS = [0, 0, 0, -1, 0, 5, 5, 5, -1]
SECOND_ROWS = [0, 0, 0, 1, 1, 1]


@pytest.fixture(autouse=True)
def home(workdir: Path) -> Path:
    """Starts in a folder with two events and their tracks."""
    write_events(workdir / "events")
    write_tracks(Path("tracks"), FIRST, *columns(FIRST_TRACKS))
    write_tracks(Path("tracks"), SECOND, *columns(SECOND_TRACKS))
    return workdir


def exported(rest: str, run_program: Run) -> str:
    return output_of(run_program(f"bigtrk export tracks tracks {rest}".split()))


def test_a_trackml_submission(run_program: Run) -> None:
    exported("out/mine.csv --format trackml", run_program)
    exported("mine.csv.gz --format trackml", run_program)
    assert gzip.decompress(Path("mine.csv.gz").read_bytes()) == Path("out/mine.csv").read_bytes()
    with Path("out/mine.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["event_id", "hit_id", "track_id"]
    first = {int(r["hit_id"]): int(r["track_id"]) for r in rows if r["event_id"] == "21"}
    assert first == FIRST_TRACKS | {9: 6}, "a hit in no track is one by itself"
    assert list(open_tracks(Path("out/mine.csv")).events) == [21, 22]


def test_a_row_per_track_with_the_list_of_its_hits(run_program: Run) -> None:
    exported("mine.parquet --format parquet", run_program)
    assert pq.read_table("mine.parquet").to_pylist() == [
        {"event_id": 21, "track_id": 0, "hit_ids": [1, 2, 3, 5]},
        {"event_id": 21, "track_id": 5, "hit_ids": [6, 7, 8]},
        {"event_id": 22, "track_id": 0, "hit_ids": [1, 2, 3]},
        {"event_id": 22, "track_id": 1, "hit_ids": [4, 5, 6]},
    ]
    table = pd.read_parquet("mine.parquet")
    assert table.hit_ids.map(len).tolist() == [4, 3, 3, 3]
    back = open_tracks(Path("mine.parquet"))
    assert list(back.events) == [21, 22]
    assert back.read(21).hit_id.tolist() == [1, 2, 3, 5, 6, 7, 8]
    assert back.read(21).track_id.tolist() == [0] * 4 + [5] * 3


def test_prototracks_of_acts(run_program: Run) -> None:
    """Columns of ACTS's ProtoTrackData; tracks are numbered from 0, hits keep their ids."""
    hits = pd.read_csv("events/event000000021-hits.csv.gz")
    hits["x"], hits["y"], hits["z"] = hits.hit_id * 1.5, -0.25, hits.hit_id * 100.0
    hits.sample(frac=1, random_state=0).to_csv("events/event000000021-hits.csv.gz", index=False)
    text = exported("acts --format acts --events events", run_program)
    assert text == "2 files in acts\n"
    names = [path.name for path in sorted(Path("acts").iterdir())]
    assert names == ["event000000021-prototracks.csv", "event000000022-prototracks.csv"]
    table = pd.read_csv(Path("acts") / names[0])
    assert list(table.columns) == ["trackId", "measurementId", "x", "y", "z"]
    found = {track: sorted(one.measurementId) for track, one in table.groupby("trackId")}
    assert found == {0: [1, 2, 3, 5], 1: [6, 7, 8]}
    assert (table.x == table.measurementId * 1.5).all()
    assert (table.y == -0.25).all()
    assert (table.z == table.measurementId * 100.0).all()


def test_a_row_for_each_hit(monkeypatch: pytest.MonkeyPatch, run_program: Run) -> None:
    printed = output_of(run_program(["bigtrk", "submit", "tracks", "events", "mine.parquet"]))
    assert printed == "mine.parquet: 2 events, 15 hits, 4 tracks\n"
    table = pd.read_parquet("mine.parquet")
    assert list(table.columns) == ["event_id", "hit_id", "track_id"]
    rows = {number: one.track_id.tolist() for number, one in table.groupby("event_id")}
    assert rows == {21: FIRST_ROWS, 22: SECOND_ROWS}
    assert table.hit_id.tolist() == [*range(1, 10), *range(1, 7)]
    # The package's own check, with its own way to name events of another range.
    monkeypatch.setenv("COLLIDERML_TRACKING_EVAL_RANGE", "21:23")
    TrackingTask().validate_predictions(pq.read_table("mine.parquet"))


def test_an_event_without_tracks_is_left_out_and_counted(run_program: Run) -> None:
    write_submission(Path("one.csv"), [(SECOND, *columns(SECOND_TRACKS))])
    _, text, _ = run_program(["bigtrk", "submit", "one.csv", "events", "mine.parquet"])
    assert text.endswith("1 event, 6 hits, 2 tracks; left out: 1 event without tracks\n")
    assert pd.read_parquet("mine.parquet").event_id.unique().tolist() == [22]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (
            "export tracks tracks out --format root",
            "'root' is not one of 'trackml', 'parquet', 'acts'",
        ),
        ("export tracks tracks out --format acts", "--format acts needs --events"),
        (
            "export tracks tracks out.parquet --format parquet --events events",
            "--events needs --format acts; choose that, or leave out --events",
        ),
        ("export tracks broken out.parquet --format parquet", "row 2: hit 1 is listed again"),
        (
            "export tracks tracks events/event000000021-hits.csv.gz --format acts --events events",
            "event000000021-hits.csv.gz: is a file, but must be a folder; name another",
        ),
        ("export tracks tracks events --format trackml", "events: is a folder; name a file in it"),
        (
            "export tracks tracks mine.parquet --format trackml",
            "must end with .csv or .csv.gz; change it",
        ),
        (
            "export tracks other out --format acts --events events",
            "tracks of event 23, which is not in events",
        ),
        ("submit tracks events mine.csv", "mine.csv: its name must end with"),
        ("submit tracks events event000000021-tracks.parquet", "a file of this name is read as"),
        ("submit tracks events events", "events: is a folder; name a file in it, such as"),
        (
            "submit tracks events mine.parquet --max-edges 10",
            "tracks: is no pipeline, so it takes no --max-edges and --spill; leave these out",
        ),
        ("submit tracks absent mine.parquet", "absent"),
        ("submit other events mine.parquet", "tracks of event 23, which is not in events"),
        ("submit beyond events mine.parquet", "row 1: hit 99 is not in the event"),
        ("submit tracks hits mine.parquet --majority-particles", f"{FIRST}: has hits but no truth"),
    ],
)
def test_bad_input_is_told_in_one_line_and_leaves_the_former(
    command: str, named: str, home: Path, run_program: Run
) -> None:
    Path("mine.parquet").write_text("the former")
    write_tracks(Path("broken"), FIRST, *columns({1: 0}))
    pq.write_table(
        pq.read_table(Path("broken") / f"{FIRST}-tracks.parquet").take([0, 0]),
        Path("broken") / f"{FIRST}-tracks.parquet",
    )
    write_tracks(Path("other"), "event000000023", *columns({1: 0}))
    write_tracks(Path("beyond"), SECOND, *columns({99: 0}))
    Path("hits").mkdir()
    for file in Path("events").glob("*-hits.*"):
        (Path("hits") / file.name).write_bytes(file.read_bytes())
    before = sorted(home.iterdir())
    assert named in one_line(refusal_of(run_program(["bigtrk", *command.split()])))
    assert Path("mine.parquet").read_text() == "the former"
    assert sorted(home.iterdir()) == before
