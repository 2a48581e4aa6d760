import gzip
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd
import pytest

from bigtrk.errors import InputError
from bigtrk.events.event import Columns, Event
from bigtrk.events.reader import event_sizes, find_events, read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event

NAME = "event000000007"


def same(first: Columns | None, second: Columns | None) -> None:
    assert first is not None
    assert second is not None
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], strict=True)


def same_tables(first: Event, second: Event) -> None:
    for table in ("hits", "cells", "particles", "truth"):
        left, right = getattr(first, table), getattr(second, table)
        assert (left is None) == (right is None)
        if left is not None:
            same(left, right)


@pytest.mark.parametrize(
    ("folder", "name"),
    [("trackml_event1000", "event000001000"), ("trackml_subevent", "event000000001")],
)
def test_real_events_equal_what_pandas_reads(
    testdata: Path, tmp_path: Path, folder: str, name: str
) -> None:
    event = read_event(testdata / "data" / folder)
    assert event.name == name
    for table in ("hits", "cells", "particles", "truth"):
        path = testdata / "data" / folder / f"{name}-{table}.csv.gz"
        columns = getattr(event, table)
        assert (columns is not None) == path.exists()
        if columns is None:
            continue
        expected = pd.read_csv(path)
        assert set(columns) == set(expected.columns)
        for column, values in columns.items():
            np.testing.assert_array_equal(values, expected[column].to_numpy())
            is_id = column.endswith("_id") or column in ("ch0", "ch1", "nhits", "particle_type")
            assert values.dtype == (np.int64 if is_id else np.float64)
            assert values.flags.writeable
    # The files hold six digits, which float32 gives back, so writing changes nothing.
    write_event(event, tmp_path)
    same_tables(read_event(tmp_path), event)


@pytest.mark.parametrize("compress", [True, False])
def test_a_simulated_event_comes_back_unchanged(tmp_path: Path, compress: bool) -> None:
    event = simulate_event(200, seed=5, event_id=12)
    files = write_event(event, tmp_path, compress)
    assert {file.suffix for file in files} == {".gz" if compress else ".csv"}
    assert sorted(tmp_path.iterdir()) == sorted(files)
    found = read_event(tmp_path)
    assert found.name == event.name
    same_tables(found, event)


def test_zip_archives_with_and_without_a_folder(tiny: Path) -> None:
    for inside in ("", "train_sample/"):
        archive = tiny / "sample.zip"
        with ZipFile(archive, "w", ZIP_DEFLATED) as target:
            for path in sorted(tiny.glob("*.csv")):
                target.write(path, inside + path.name)
            target.writestr(f"__MACOSX/{inside}._{NAME}-hits.csv", b"\0")
        assert find_events(archive) == [NAME]
        same(read_event(archive).truth, read_event(tiny).truth)
        same(read_event(archive / NAME).hits, read_event(tiny).hits)


def test_events_are_sized_by_their_files_of_hits(tmp_path: Path) -> None:
    """One that is gone counts as empty: reading it says so."""
    (tmp_path / "event2-hits.csv").write_text("12345")
    (tmp_path / "event2-truth.csv").write_text("1234567")
    (tmp_path / "event1-hits.csv.gz").write_bytes(gzip.compress(bytes(100)))
    with ZipFile(tmp_path / "events.zip", "w", ZIP_DEFLATED) as archive:
        for file in tmp_path.glob("event*-*"):
            archive.write(file, f"inside/{file.name}")
    packed = (tmp_path / "event1-hits.csv.gz").stat().st_size
    expected = {"event1": packed, "event2": 5}
    assert list(event_sizes(tmp_path).items()) == list(expected.items())
    assert event_sizes(tmp_path / "events.zip") == expected
    (tmp_path / "event3-hits.csv").symlink_to(tmp_path / "gone")
    assert event_sizes(tmp_path) == {**expected, "event3": 0}


def test_a_prefix_or_a_file_names_the_event(tiny: Path) -> None:
    for table in ("hits", "truth"):
        text = (tiny / f"{NAME}-{table}.csv").read_text()
        (tiny / f"event000000008-{table}.csv").write_text(text)
    assert find_events(tiny) == [NAME, "event000000008"]
    for end in (NAME, f"{NAME}-hits.csv", f"{NAME}-truth.csv"):
        assert read_event(tiny / end).name == NAME
        assert find_events(tiny / end) == [*event_sizes(tiny / end)] == [NAME]
    with pytest.raises(InputError, match=r"holds 2 events, event000000007 to .*; name one of them"):
        read_event(tiny)


def rewrite(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    change(pd.read_csv(path)).to_csv(path, index=False)


def test_other_columns_ids_from_zero_and_carriage_returns(tiny: Path) -> None:
    hits, particles = tiny / f"{NAME}-hits.csv", tiny / f"{NAME}-particles.csv"
    for table in ("hits", "cells", "truth"):
        path = tiny / f"{NAME}-{table}.csv"
        rewrite(path, lambda frame: frame.assign(hit_id=frame.hit_id - 1))
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    pd.read_csv(hits).assign(note="text").to_csv(hits)  # with an unnamed index column
    rewrite(particles, lambda table: table.assign(nhits=[None] * len(table), particle_type=-211))
    event = read_event(tiny)
    assert event.hits["hit_id"].tolist() == [0, 1, 2]
    assert event.cells is not None
    assert event.cells["hit_id"].tolist() == [0, 0, 2]
    assert event.particles is not None
    assert "nhits" not in event.particles
    assert event.particles["particle_type"].tolist() == [-211]


def test_acts_columns(tiny: Path) -> None:
    def geometry_id(hits: pd.DataFrame) -> pd.DataFrame:
        packed = [
            (int(v) << 56) | (int(layer) << 36) | (int(m) << 8)
            for v, layer, m in zip(hits.volume_id, hits.layer_id, hits.module_id, strict=True)
        ]
        hits = hits.drop(columns=["volume_id", "layer_id", "module_id"])
        return hits.assign(geometry_id=np.array(packed, dtype=np.uint64), t=0.5)

    expected = read_event(tiny)
    # Volume 200 sets the top bit: the packed id does not fit int64.
    rewrite(tiny / f"{NAME}-hits.csv", lambda hits: geometry_id(hits.assign(volume_id=200)))
    renamed = {"ch0": "channel0", "ch1": "channel1"}
    rewrite(tiny / f"{NAME}-cells.csv", lambda cells: cells.rename(columns=renamed))
    (tiny / f"{NAME}-particles.csv").rename(tiny / f"{NAME}-particles_initial.csv")
    event = read_event(tiny)
    assert event.hits["volume_id"].tolist() == [200] * 3
    for name in ("layer_id", "module_id", "x"):
        np.testing.assert_array_equal(event.hits[name], expected.hits[name], strict=True)
    same(event.cells, expected.cells)
    same(event.particles, expected.particles)
