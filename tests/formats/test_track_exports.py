"""Tracks for other software: `bigtrk export tracks`, read again by pandas and pyarrow."""

import csv
import gzip
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from bigtrk.tracks.files import open_tracks, write_tracks
from tests.programs import run_here
from tests.test_bad_input import one_line
from tests.tracks.judged_events import (
    FIRST,
    FIRST_TRACKS,
    SECOND,
    SECOND_TRACKS,
    columns,
    write_events,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Starts in a folder with two events and their tracks."""
    monkeypatch.chdir(tmp_path)
    write_events(tmp_path / "events")
    write_tracks(Path("tracks"), FIRST, *columns(FIRST_TRACKS))
    write_tracks(Path("tracks"), SECOND, *columns(SECOND_TRACKS))
    return tmp_path


def exported(rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    command = f"bigtrk export tracks tracks {rest}"
    status, text, errors = run_here(command.split(), monkeypatch, capsys)
    assert status == 0, errors
    return text


def test_a_trackml_submission(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported("out/mine.csv --format trackml", monkeypatch, capsys)
    exported("mine.csv.gz --format trackml", monkeypatch, capsys)
    assert gzip.decompress(Path("mine.csv.gz").read_bytes()) == Path("out/mine.csv").read_bytes()
    with Path("out/mine.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["event_id", "hit_id", "track_id"]
    first = {int(r["hit_id"]): int(r["track_id"]) for r in rows if r["event_id"] == "21"}
    assert first == FIRST_TRACKS | {9: 6}, "a hit in no track is one by itself"
    assert list(open_tracks(Path("out/mine.csv")).events) == [21, 22]


def test_a_row_per_track_with_the_list_of_its_hits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported("mine.parquet --format parquet", monkeypatch, capsys)
    assert pq.read_table("mine.parquet").to_pylist() == [
        {"event_id": 21, "track_id": 0, "hit_ids": [1, 2, 3, 5]},
        {"event_id": 21, "track_id": 5, "hit_ids": [6, 7, 8]},
        {"event_id": 22, "track_id": 0, "hit_ids": [1, 2, 3]},
        {"event_id": 22, "track_id": 1, "hit_ids": [4, 5, 6]},
    ]
    table = pd.read_parquet("mine.parquet")
    assert table.hit_ids.map(len).tolist() == [4, 3, 3, 3]


def test_prototracks_of_acts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns of ACTS's ProtoTrackData; tracks are numbered from 0, hits keep their ids."""
    hits = pd.read_csv("events/event000000021-hits.csv.gz")
    hits["x"], hits["y"], hits["z"] = hits.hit_id * 1.5, -0.25, hits.hit_id * 100.0
    hits.sample(frac=1, random_state=0).to_csv("events/event000000021-hits.csv.gz", index=False)
    text = exported("acts --format acts --events events", monkeypatch, capsys)
    assert text == "2 files are in acts\n"
    names = [path.name for path in sorted(Path("acts").iterdir())]
    assert names == ["event000000021-prototracks.csv", "event000000022-prototracks.csv"]
    table = pd.read_csv(Path("acts") / names[0])
    assert list(table.columns) == ["trackId", "measurementId", "x", "y", "z"]
    found = {track: sorted(one.measurementId) for track, one in table.groupby("trackId")}
    assert found == {0: [1, 2, 3, 5], 1: [6, 7, 8]}
    assert (table.x == table.measurementId * 1.5).all()
    assert (table.y == -0.25).all()
    assert (table.z == table.measurementId * 100.0).all()


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        ("tracks out --format root", "'root' is not one of 'trackml', 'parquet', 'acts'"),
        ("tracks out --format acts", "--format acts needs --events"),
        ("tracks out.parquet --format parquet --events events", "--events is of --format acts"),
        ("broken out.parquet --format parquet", "row 2: hit 1 is listed again"),
        (
            "tracks events/event000000021-hits.csv.gz --format acts --events events",
            "event000000021-hits.csv.gz: is a file, not a folder to write to; name another",
        ),
        ("tracks events --format trackml", "events: is a folder; name a file in it"),
        ("tracks mine.parquet --format trackml", "does not end with .csv or .csv.gz; name it so"),
        ("other out --format acts --events events", "tracks of event 23, which events does not"),
    ],
)
def test_bad_input_is_told_in_one_line_and_leaves_nothing(
    rest: str,
    named: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_tracks(Path("broken"), FIRST, *columns({1: 0}))
    pq.write_table(
        pq.read_table(Path("broken") / f"{FIRST}-tracks.parquet").take([0, 0]),
        Path("broken") / f"{FIRST}-tracks.parquet",
    )
    write_tracks(Path("other"), "event000000023", *columns({1: 0}))
    before = sorted(home.iterdir())
    command = f"bigtrk export tracks {rest}"
    status, out, errors = run_here(command.split(), monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert named in one_line(errors)
    assert sorted(home.iterdir()) == before
