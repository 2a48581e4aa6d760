"""Parquet submissions: written by event, read in any order, refused in one line."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.files import HitTracks, SubmittedEvent, open_tracks, write_parquet_submission

FIRST = (90001, np.array([0, 1, 2]), np.array([4, -1, 4]), np.array([7, 0, 7]))
SECOND = (90000, np.array([0, 1]), np.array([0, 0]), np.array([8, 8]))


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
    write_parquet_submission(path, [FIRST, SECOND], claimed)
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
    write_parquet_submission(path, [SECOND], claimed=False)
    former = path.read_bytes()

    def broken() -> Iterator[SubmittedEvent]:
        yield FIRST
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
        ("event_id", None, "missing column event_id; the table needs event_id, hit_id, track_id"),
        ("track_id", pa.array([0.0, 0.0, 1.0]), "column track_id holds double, not integers"),
        ("track_id", pa.array([0, 0, None]), "row 3: track_id is blank; write a whole number"),
        ("hit_id", pa.array([0, 0, 0]), "row 2: hit 0 is listed again; keep one row of each hit"),
        ("track_id", pa.array([0, -2, 0]), "row 2: track id -2 is below -1"),
        ("majority_particle_id", pa.array([1, 1, 2**63], pa.uint64()), "row 3: majority_particle_"),
    ],
)
def test_a_broken_submission_is_told_in_one_line(
    tmp_path: Path, name: str, column: pa.Array | None, message: str
) -> None:
    path = tmp_path / "mine.parquet"
    columns = {key: one for key, one in {**GOOD, name: column}.items() if one is not None}
    pq.write_table(pa.table(columns), path, row_group_size=1)
    with pytest.raises(InputError, match=message) as caught:
        read_all(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def read_all(path: Path) -> None:
    found = open_tracks(path)
    for number in found.events:
        found.read(number)
