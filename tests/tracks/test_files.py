"""Tracks written and read again, and files of others: submissions, and lists of hits."""

import ast
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.files import (
    HitTracks,
    SubmittedEvent,
    event_number,
    open_tracks,
    write_parquet_submission,
    write_submission,
    write_tracks,
)
from tests.tracks.judged_events import FIRST, FIRST_TRACKS, SECOND, columns

HUGE = 2**63 - 1
HEAD = "event_id,hit_id,track_id\n"
LISTS = "track_id,Measurements_ID\n"  # ACTS's


def test_a_file_of_each_event(tmp_path: Path) -> None:
    path = write_tracks(tmp_path / "out", FIRST, *columns(FIRST_TRACKS))
    write_tracks(tmp_path / "out", SECOND, *columns({1: HUGE, HUGE: 0}))
    (tmp_path / "out" / "submission.csv").write_text("others may lie there, too")
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
    with pytest.raises(InputError, match="event000001000_g000: must be named"):
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
        ("hit_id,track_id\n1,2\n", "row 1: missing column event_id; the table needs"),
        (HEAD + "21,1,0\n21,2\n", "row 3: 2 values where the header has 3"),
        (HEAD + "21,1,0\n21,2,1.0\n", "row 3: track_id is '1.0', not an integer"),
        (HEAD + "21,1,0\n22,1,0\n21,1,0\n", "row 4: hit 1 is listed again"),
        (HEAD + "22,1,0\n21,1,-2\n", "row 3: track id -2 is below -1"),
        ("track_id,hits\n", "missing column Measurements_ID"),
        (LISTS + '0,"[1,2"\n', "row 2: track '0' has hits"),
        (LISTS + '-1,"[1]"\n', "row 2: track '-1'"),
        (LISTS + '0,"[1 2]"\n', "row 2: track '0' has hits"),
        (LISTS + f'0,"[{10**19}]"\n', "row 2: track '0' has hits"),
        (LISTS + f'{10**19},"[1]"\n', "row 2: track '10000000000000000000'"),
        (LISTS + f'0,"[{"1," * 70_000}]"\n', "damaged file .field larger than"),
    ],
)
def test_broken_csv_names_the_row(tmp_path: Path, content: str, message: str) -> None:
    is_acts = content.startswith("track_id")
    path = tmp_path / (f"{FIRST}-tracks_ckf.csv" if is_acts else "mine.csv")
    path.write_text(content)
    with pytest.raises(InputError, match=f"^{path}.*{message}"):
        open_tracks(path).read(21)


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
    with pytest.raises(InputError, match=r"of the same event as .* put them in different folders"):
        open_tracks(tmp_path)


@pytest.mark.parametrize("name", [None, "tracks.parquet", "event1.parquet"])
def test_nothing_to_judge_is_said(tmp_path: Path, name: str | None) -> None:
    if name:
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=f"{name}: is not a readable Parquet file"):
            open_tracks(tmp_path / name)
    with pytest.raises(InputError, match=r"holds no tracks \(files such as event000001000"):
        open_tracks(tmp_path)
    with pytest.raises(InputError, match="absent: no such file or folder; name a folder"):
        open_tracks(tmp_path / "absent")


@pytest.mark.parametrize("name", ["event", "event1_g000", "event-1", f"event{10**18}"])
def test_a_name_without_a_number(name: str) -> None:
    with pytest.raises(InputError, match="must be named 'event' and a number of at most"):
        event_number(name)


HITS = np.array([5, 3, 9, 4])


def listed(*rows: tuple[int, int]) -> HitTracks:
    """Hit and track of each row of a file whose first row is called 11."""
    hit_id, track_id = np.array(rows, np.int64).reshape(-1, 2).T
    return HitTracks(hit_id, track_id, "mine.csv", np.arange(len(rows)) + 11)


def test_hits_in_any_order_and_those_not_listed_in_no_track() -> None:
    assert listed((9, 1), (5, 2), (3, -1)).checked().of_hits(HITS).tolist() == [2, -1, 1, -1]
    assert listed().checked().of_hits(HITS).tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(9, 1), (7, 1), (-5, 1)], r"row 12: hit 7 is not in the event; .*such hits \(2 in all\)"),
        ([(9, 1), (2**63 - 1, 1)], "row 12: hit 9223372036854775807 is not in the event"),
    ],
)
def test_bad_rows_are_named(rows: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        listed(*rows).checked().of_hits(HITS)


ONE = (90001, np.array([0, 1, 2]), np.array([4, -1, 4]), np.array([7, 0, 7]))
OTHER = (90000, np.array([0, 1]), np.array([0, 0]), np.array([8, 8]))


def plain(listed: HitTracks) -> dict[str, list[int] | None]:
    claimed = None if listed.claimed is None else listed.claimed.tolist()
    return {
        "hit": listed.hit_id.tolist(),
        "track": listed.track_id.tolist(),
        "row": listed.row.tolist(),
        "claimed": claimed,
    }


@pytest.mark.parametrize("claimed", [True, False])
def test_what_is_written_is_read(tmp_path: Path, claimed: bool) -> None:
    path = tmp_path / "new" / "mine.parquet"
    write_parquet_submission(path, [ONE, OTHER], claimed)
    found = open_tracks(path)
    assert found.events == {90000: f"{path}, row 4", 90001: f"{path}, row 1"}
    named = {90000: [8, 8], 90001: [7, 0, 7]}
    assert plain(found.read(90000)) == {
        "hit": [0, 1],
        "track": [0, 0],
        "row": [4, 5],
        "claimed": named[90000] if claimed else None,
    }
    assert plain(found.read(90001))["claimed"] == (named[90001] if claimed else None)
    assert pq.ParquetFile(path).metadata.num_row_groups == 2, "an event at a time"


def test_a_submission_that_fails_leaves_the_former(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    write_parquet_submission(path, [OTHER], claimed=False)
    former = path.read_bytes()

    def broken() -> Iterator[SubmittedEvent]:
        yield ONE
        raise InputError("event000090002: damaged")

    with pytest.raises(InputError, match="damaged"):
        write_parquet_submission(path, broken(), claimed=False)
    assert path.read_bytes() == former
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
def test_rows_in_any_order_and_of_any_integers(tmp_path: Path, row_group_size: int) -> None:
    path = tmp_path / "mine.parquet"
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {"event_id": np.repeat([5, 6, 7], 20), "hit_id": np.tile(np.arange(20), 3)}
    )
    table["track_id"] = draw.integers(-1, 5, len(table))
    table = table.sample(frac=1, random_state=1).reset_index(drop=True)
    columns = {
        "extra": pa.array(["text"] * len(table)),
        "track_id": pa.array(table.track_id, pa.int16()),
        "hit_id": pa.array(table.hit_id, pa.uint64()),
        "event_id": pa.array(table.event_id, pa.uint32()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    found = open_tracks(path)
    assert list(found.events) == [5, 6, 7]
    for number, rows in table.groupby("event_id"):
        listed = plain(found.read(int(str(number))))
        assert listed["hit"] == rows.hit_id.tolist()
        assert listed["track"] == rows.track_id.tolist()
        assert listed["row"] == (rows.index + 1).tolist()
        assert found.events[int(str(number))] == f"{path}, row {rows.index[0] + 1}"


GOOD = {
    "event_id": pa.array([1, 1, 2]),
    "hit_id": pa.array([0, 1, 0]),
    "track_id": pa.array([0, 0, 0]),
}


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("event_id", None, "missing column event_id; .* that it has event_id, hit_id, track_id"),
        ("track_id", pa.array([0.0, 0.0, 1.0]), "column track_id holds double, not integers"),
        ("track_id", pa.array([0, 0, None]), "row 3: track_id is blank; write a whole number"),
        ("majority_particle_id", pa.array([1, 1, 2**63], pa.uint64()), "row 3: majority_particle_"),
    ],
)
def test_a_broken_parquet_submission_is_told_in_one_line(
    tmp_path: Path, name: str, column: pa.Array | None, message: str
) -> None:
    path = tmp_path / "mine.parquet"
    columns = {key: one for key, one in {**GOOD, name: column}.items() if one is not None}
    pq.write_table(pa.table(columns), path, row_group_size=1)
    with pytest.raises(InputError, match=f"^{path}.*{message}") as caught:
        open_tracks(path).read(2)
    assert "\n" not in str(caught.value)


def first_owner(lists: list[list[int]], names: list[int]) -> dict[int, int]:
    """Gives each hit to the longest of its tracks, by hand."""
    owner: dict[int, int] = {}
    for row in sorted(range(len(lists)), key=lambda row: -len(lists[row])):
        for hit in lists[row]:
            owner.setdefault(hit, names[row])
    return owner


@pytest.mark.parametrize("kind", ["tracks_ckf", "tracks_ambi"])
def test_acts_tracks_are_those_that_pandas_reads(testdata: Path, kind: str) -> None:
    path = testdata / "data" / "acts_generic" / f"event000000001-{kind}.csv.gz"
    table = pd.read_csv(path)
    owner = first_owner([ast.literal_eval(s) for s in table.Measurements_ID], list(table.track_id))
    source = open_tracks(path)
    assert list(source.events) == [1]
    found = source.read(1)
    assert dict(zip(found.hit_id.tolist(), found.track_id.tolist(), strict=True)) == owner


def test_colliderml_tracks_are_those_that_pandas_reads(testdata: Path) -> None:
    (path,) = (testdata / "data" / "colliderml_production").glob("*.reco.tracks.*")
    table = pd.read_parquet(path).set_index("event_id")
    source = open_tracks(path)
    assert list(source.events) == list(table.index)
    found = source.read(3)
    owner = first_owner([list(hits) for hits in table.hit_ids[3]], list(table.track_id[3]))
    assert dict(zip(found.hit_id.tolist(), found.track_id.tolist(), strict=True)) == owner
    assert np.unique(found.row).tolist() == [4]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"hit_ids": [[[1, 2]]]}, "missing column track_id; lists of tracks need event_id, "),
        ({"track_id": [[7, 8]], "hit_ids": [[[1, 2]]]}, "row 1: track_id and hit_ids differ"),
        ({"track_id": [7], "hit_ids": [1]}, "damaged file"),
        ({"track_id": [[7]], "hit_ids": [[1]]}, "damaged file"),
    ],
)
def test_bad_colliderml_tracks_are_refused(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"event_id": [0], **columns}), path)
    with pytest.raises(InputError, match=message):
        open_tracks(path).read(0)
