"""Events in ACTS's CSV tables, against pandas."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigtrk.errors import InputError
from bigtrk.events.reader import event_sizes, find_events, format_of, read_event
from bigtrk.events.truth import hit_particles, particle_kinematics

NAME = "event000000000"
BITS = {"pv": 52, "sv": 40, "part": 24, "gen": 16, "subpart": 0}  # where each number begins


def ids(table: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = [table[f"particle_id_{part}"].to_numpy() << begin for part, begin in BITS.items()]
    total: np.ndarray[Any, np.dtype[np.int64]] = np.stack(numbers).sum(axis=0)
    return total


def test_measurements_and_truth_are_what_pandas_reads(testdata: Path) -> None:
    folder = testdata / "data" / "acts_generic"
    assert format_of(folder) == "acts"
    assert find_events(folder) == [NAME, "event000000001"]
    assert find_events(folder / NAME) == [NAME] == list(event_sizes(folder / NAME))
    event = read_event(folder, NAME)

    def table(stem: str) -> pd.DataFrame:
        return pd.read_csv(folder / f"{NAME}-{stem}.csv.gz")

    measured, hits = table("measurements"), table("hits")
    np.testing.assert_array_equal(event.hits["hit_id"], measured.measurement_id)
    for axis in "xyz":
        np.testing.assert_array_equal(event.hits[axis], measured[f"global_{axis}"])
    np.testing.assert_array_equal(
        event.hits["module_id"], measured.geometry_id.to_numpy(np.int64) >> 8 & 0xFFFFF
    )
    # The largest deposit names a merged measurement's particle.
    pairs = table("measurement-simhit-map").assign(
        deposit=lambda rows: -hits.deltae.abs().to_numpy()[rows.hit_id]
    )
    first = pairs.sort_values(["measurement_id", "deposit"]).drop_duplicates("measurement_id")
    assert len(first) < len(pairs)
    np.testing.assert_array_equal(hit_particles(event), ids(hits)[first.hit_id.to_numpy(np.int64)])
    particles = table("particles_simulated")
    known = particle_kinematics(event)
    listed = particles.assign(id=ids(particles)).set_index("id")
    chosen = listed.loc[known["particle_id"]]
    np.testing.assert_allclose(known["pt"].astype(float), np.hypot(chosen.px, chosen.py))


def test_the_older_layout_has_hits_at_their_true_positions(testdata: Path) -> None:
    folder = testdata / "data" / "traccc_event"
    event = read_event(folder)
    hits = pd.read_csv(folder / "hits.csv.gz")
    np.testing.assert_array_equal(event.hits["x"], hits.tx)
    np.testing.assert_array_equal(
        event.hits["module_id"], hits.geometry_id.to_numpy(np.int64) & 0xFFFFFFF
    )
    np.testing.assert_array_equal(hit_particles(event), hits.particle_id)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, testdata: Path) -> Path:
    """The first rows of an event."""
    folder = tmp_path_factory.mktemp("small")
    for file in (testdata / "data" / "acts_generic").glob(f"{NAME}-*.csv.gz"):
        rows = gzip.decompress(file.read_bytes()).decode().splitlines()
        (folder / file.name.removesuffix(".gz")).write_text("\n".join(rows[:101]) + "\n")
    return folder


TABLES = {
    "map of no hits": ("measurement-simhit-map", "0,0", "0,100000", "100000 is not in the 100"),
    "map of others": ("measurement-simhit-map", "0,0", "9999,0", "measurement_id 9999 is not"),
    "other cells": ("cells", "\n", "\n1,9999,0,0,0,0\n", "row 2: measurement_id 9999 is not in"),
    "repeated": ("measurements", "\n1,", "\n0,", "measurement_id 0 appears a second"),
    "large number": ("hits", "\n176,0,4,", "\n4096,0,4,", "particle_id_pv is 4096"),
    "no columns": ("hits", "particle_id_pv", "other", "has neither the column particle_id nor"),
}


@pytest.mark.parametrize(("stem", "old", "new", "message"), TABLES.values(), ids=TABLES)
def test_bad_tables_are_refused(
    small: Path, tmp_path: Path, stem: str, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "events"
    shutil.copytree(small, folder)
    file = folder / f"{NAME}-{stem}.csv"
    content = file.read_text()
    assert old in content
    file.write_text(content.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_event(folder)


def test_a_measurement_without_a_simulated_hit_is_noise(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "events"
    shutil.copytree(small, folder)
    file = folder / f"{NAME}-measurement-simhit-map.csv"
    file.write_text(file.read_text().replace("\n99,99\n", "\n"))
    assert hit_particles(read_event(folder))[99] == 0
    assert "has no row for 1 of 100 measurements (such as number 99)" in capsys.readouterr().err


@pytest.mark.parametrize("stem", ["hits", "measurement-simhit-map", "measurements"])
def test_half_of_an_event_is_refused(small: Path, tmp_path: Path, stem: str) -> None:
    """Simulated hits stand in for measurements only if both files of these are missing."""
    folder = tmp_path / "events"
    shutil.copytree(small, folder)
    (folder / f"{NAME}-{stem}.csv").unlink()
    with pytest.raises(InputError, match=f"needs {NAME}-{stem}.csv, which is missing"):
        read_event(folder)
    if stem == "measurements":
        (folder / f"{NAME}-measurement-simhit-map.csv").unlink()
        assert len(read_event(folder).hits["hit_id"])
        return
    assert read_event(folder, with_truth=False).truth is None
    with pytest.raises(InputError, match="has no event7-measurements"):
        read_event(folder / "event7")
