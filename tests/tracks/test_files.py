"""Tracks written and read again, and files of others."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.files import event_number, open_tracks, write_submission, write_tracks
from tests.tracks.judged_events import FIRST, FIRST_TRACKS, SECOND, columns

HUGE = 2**63 - 1
HEAD = "event_id,hit_id,track_id\n"


def test_a_file_of_each_event(tmp_path: Path) -> None:
    path = write_tracks(tmp_path / "out", FIRST, *columns(FIRST_TRACKS))
    write_tracks(tmp_path / "out", SECOND, *columns({1: HUGE, HUGE: 0}))
    (tmp_path / "out" / "submission.csv").write_text("others may lie beside")
    assert path == tmp_path / "out" / "event000000021-tracks.parquet"
    found = open_tracks(tmp_path / "out")
    assert list(found.events) == [21, 22]
    first = found.read(21)
    assert dict(zip(first.hit_id.tolist(), first.track_id.tolist(), strict=True)) == FIRST_TRACKS
    assert found.read(22).track_id.tolist() == [HUGE, 0]
    assert list(open_tracks(path).events) == [21]


def test_a_submission_has_every_hit_in_a_track(tmp_path: Path) -> None:
    path = tmp_path / "new" / "submission.csv"
    tracks = {5: 3, 6: -1, 7: 3, 8: -1}
    write_submission(path, [(SECOND, *columns(tracks)), (FIRST, *columns({1: -1}))])
    rows = ["22,5,3", "22,6,4", "22,7,3", "22,8,5", "21,1,0"]
    assert path.read_text() == HEAD + "\n".join(rows) + "\n"
    found = open_tracks(path)
    assert list(found.events) == [21, 22]
    assert found.read(22).track_id.tolist() == [3, 4, 3, 5]


def test_a_submission_that_fails_leaves_nothing(tmp_path: Path) -> None:
    events = [(FIRST, *columns({1: 0})), ("event000001000_g000", *columns({1: 0}))]
    with pytest.raises(InputError, match="event000001000_g000: this name of an event has no"):
        write_submission(tmp_path / "submission.csv", events)
    assert list(tmp_path.iterdir()) == []


def test_rows_in_any_order_columns_beside_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv.gz"
    text = "track_id,score,event_id,hit_id\n4,0.5,22,1\n3,0.5,21,9\n4,,22,2\n"
    path.write_bytes(gzip.compress(text.encode()))
    found = open_tracks(path)
    assert found.events == {21: f"{path}, row 3", 22: f"{path}, row 2"}
    second = found.read(22)
    assert (second.hit_id.tolist(), second.track_id.tolist()) == ([1, 2], [4, 4])
    assert second.row.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD, "the table is empty"),
        ("hit_id,track_id\n1,2\n", "row 1: missing column event_id; the table needs event_id, hit"),
        (HEAD + "21,1,0\n21,2\n", "row 3: 2 values where the header has 3"),
        (HEAD + "21,1,0\n21,2,1.0\n", "row 3: track_id is '1.0', not an integer"),
        (HEAD + "21,1,0\n22,1,0\n21,1,0\n", "row 4: hit 1 is listed again"),
        (HEAD + "22,1,0\n21,1,-2\n", "row 3: track id -2 is below -1"),
    ],
)
def test_a_broken_submission_names_the_row(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        open_tracks(path).read(21)
    assert str(caught.value).startswith(str(path))


def test_a_parquet_file_may_name_its_event(tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}-tracks.parquet"
    table = {"event_id": pa.array([21, 21]), "hit_id": [3, 4], "track_id": [0, 0]}
    pq.write_table(pa.table(table), path)
    assert open_tracks(path).read(21).hit_id.tolist() == [3, 4]
    pq.write_table(pa.table(table | {"event_id": pa.array([21, 22])}), path)
    with pytest.raises(InputError, match="row 2: event_id is 22, but the file's name says 21"):
        open_tracks(path).read(21)


def test_two_files_of_one_event_are_told_apart_by_nobody(tmp_path: Path) -> None:
    write_tracks(tmp_path, "event21", *columns({1: 0}))
    write_tracks(tmp_path, FIRST, *columns({1: 0}))
    with pytest.raises(InputError, match="is of the same event as"):
        open_tracks(tmp_path)


@pytest.mark.parametrize("name", [None, "tracks.parquet", "event1.parquet"])
def test_nothing_to_judge_is_said(tmp_path: Path, name: str | None) -> None:
    if name:
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=f"{name}: not a readable parquet file"):
            open_tracks(tmp_path / name)
    with pytest.raises(InputError, match="holds no tracks of an event, as event000001000-trac"):
        open_tracks(tmp_path)
    with pytest.raises(InputError, match="absent: no such file or folder; name a folder"):
        open_tracks(tmp_path / "absent")


@pytest.mark.parametrize("name", ["event", "event1_g000", "event-1", f"event{10**18}"])
def test_a_name_without_a_number(name: str) -> None:
    with pytest.raises(InputError, match="no number of at most 18 digits"):
        event_number(name)
