"""Tracks of ACTS and ColliderML as lists of hits."""

import ast
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigtrk.errors import InputError
from bigtrk.tracks.files import open_tracks


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
    ("content", "message"),
    [
        ("track_id,hits\n", "missing column Measurements_ID"),
        ('track_id,Measurements_ID\n0,"[1,2"\n', "row 2: track '0' has hits"),
        ('track_id,Measurements_ID\n-1,"[1]"\n', "row 2: track '-1'"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "event000000000-tracks_ckf.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        open_tracks(path).read(0)


def test_two_kinds_of_one_event_are_refused(testdata: Path) -> None:
    with pytest.raises(InputError, match="put each kind of tracks into a folder"):
        open_tracks(testdata / "data" / "acts_generic")
