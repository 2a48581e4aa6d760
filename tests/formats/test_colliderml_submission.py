"""`bigtrk submit` of tracks that are made already: read by pandas, accepted by the package."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from colliderml.tasks.tracking.task import TrackingTask

from bigtrk.tracks.files import write_submission, write_tracks
from tests.programs import run_here
from tests.test_bad_input import one_line
from tests.tracks.judged_events import FIRST, FIRST_TRACKS, SECOND, SECOND_TRACKS, columns
from tests.tracks.judged_events import write_events as events_with_truth

# Hit 4 of the first event is listed nowhere, hit 8 belongs to track 5.
FIRST_ROWS = [0, 0, 0, -1, 0, 5, 5, 5, -1]
SECOND_ROWS = [0, 0, 0, 1, 1, 1]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Starts in a folder with two events and their tracks."""
    monkeypatch.chdir(tmp_path)
    events_with_truth(tmp_path / "events")
    write_tracks(Path("tracks"), FIRST, *columns(FIRST_TRACKS))
    write_tracks(Path("tracks"), SECOND, *columns(SECOND_TRACKS))
    return tmp_path


def typed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    return run_here(command.split(), monkeypatch, capsys)


def test_a_row_for_each_hit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text, _ = typed("bigtrk submit tracks events mine.parquet", monkeypatch, capsys)
    assert (status, text) == (0, "mine.parquet: 2 events, 15 hits, 4 tracks\n")
    table = pd.read_parquet("mine.parquet")
    assert list(table.columns) == ["event_id", "hit_id", "track_id"]
    rows = {number: one.track_id.tolist() for number, one in table.groupby("event_id")}
    assert rows == {21: FIRST_ROWS, 22: SECOND_ROWS}
    assert table.hit_id.tolist() == [*range(1, 10), *range(1, 7)]
    # The package's own check, with its own way to name events of another range.
    monkeypatch.setenv("COLLIDERML_TRACKING_EVAL_RANGE", "21:23")
    TrackingTask().validate_predictions(pq.read_table("mine.parquet"))


def test_an_event_without_tracks_is_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_submission(Path("one.csv"), [(SECOND, *columns(SECOND_TRACKS))])
    _, text, _ = typed("bigtrk submit one.csv events mine.parquet", monkeypatch, capsys)
    assert text.endswith("1 events, 6 hits, 2 tracks; 1 events without tracks are left out\n")
    assert pd.read_parquet("mine.parquet").event_id.unique().tolist() == [22]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (
            "bigtrk submit tracks events mine.csv",
            "mine.csv: would not be read as what it holds",
        ),
        (
            "bigtrk submit tracks events event000000021-tracks.parquet",
            "its name is that of one event's",
        ),
        ("bigtrk submit tracks events events", "events: is a folder; name a file in it, such as"),
        (
            "bigtrk submit tracks events mine.parquet --max-edges 10",
            "tracks: is no trained pipeline; --max-edges and --spill are for making tracks",
        ),
        ("bigtrk submit tracks absent mine.parquet", "absent"),
        ("bigtrk submit other events mine.parquet", "tracks of event 23, which events does not"),
        ("bigtrk submit beyond events mine.parquet", "row 1: hit 99 is not in the event"),
        (
            "bigtrk submit tracks hits mine.parquet --majority-particles",
            f"{FIRST}: has hits but no truth",
        ),
    ],
)
def test_bad_input_is_told_in_one_line_and_leaves_the_former(
    command: str,
    named: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("mine.parquet").write_text("the former")
    write_tracks(Path("other"), "event000000023", *columns({1: 0}))
    write_tracks(Path("beyond"), SECOND, *columns({99: 0}))
    Path("hits").mkdir()
    for file in Path("events").glob("*-hits.*"):
        (Path("hits") / file.name).write_bytes(file.read_bytes())
    before = sorted(home.iterdir())
    status, out, errors = typed(command, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert named in one_line(errors)
    assert Path("mine.parquet").read_text() == "the former"
    assert sorted(home.iterdir()) == before
