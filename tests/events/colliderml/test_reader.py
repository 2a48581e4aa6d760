"""Events of a ColliderML sample, against the lists that were written."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigtrk.errors import InputError
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.truth import hit_particles, particle_kinematics
from tests.events.colliderml.samples import (
    EVENTS,
    HITS,
    NO_PARTICLE,
    PARTICLES,
    an_event,
    rows,
    write_rows,
    write_sample,
)

NAMES = [f"event{event:09d}" for event in EVENTS]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    write_sample(tmp_path, *rows())
    return tmp_path


def test_every_value_is_the_one_written(sample: Path) -> None:
    """Rows are read in any order, also back to a row that was read before."""
    assert find_events(sample) == NAMES
    for place in (2, 0, 1, 1):
        event = read_event(sample, NAMES[place])
        hits, particles = rows()[0][place], rows()[1][place]
        assert event.name == NAMES[place]
        assert event.cells is None
        assert event.hits["hit_id"].tolist() == list(range(5))
        wanted = {"volume_id": "volume_id", "layer_id": "layer_id", "module_id": "surface_id"}
        for ours, theirs in {**wanted, "x": "x", "y": "y", "z": "z"}.items():
            assert event.hits[ours].tolist() == hits[theirs].tolist()
            assert event.hits[ours].dtype in (np.float64, np.int64)
        assert event.truth is not None
        assert event.particles is not None
        for axis in "xyz":
            assert event.truth[f"t{axis}"].tolist() == hits[f"true_{axis}"].tolist()
        numbers = [0 if p == NO_PARTICLE else int(p) + 1 for p in hits["particle_id"]]
        assert event.truth["particle_id"].tolist() == numbers
        assert event.particles["particle_id"].tolist() == [3, 2, 1]
        renamed = {"q": "charge", "particle_type": "pdg_id", "nhits": "num_tracker_hits"}
        for ours, theirs in {**renamed, **{n: n for n in ("px", "py", "pz", "vx", "vy")}}.items():
            assert event.particles[ours].tolist() == particles[theirs].tolist()


def test_hits_without_truth(tmp_path: Path) -> None:
    """Held-out events have no true column, and no particles."""
    hits, _ = an_event(1)
    for name in ("particle_id", "true_x", "true_y", "true_z"):
        del hits[name]
    write_sample(tmp_path, [hits], [])
    for with_truth in (True, False):
        event = read_event(tmp_path, None, with_truth)
        assert (event.truth, event.particles) == (None, None)
        assert event.hits["x"].tolist() == hits["x"].tolist()


def test_a_particle_0_that_is_not_listed_is_none(tmp_path: Path) -> None:
    """Ids are places in a list that begins with the colliding protons: hits have 0 for nobody."""
    hits, particles = an_event(7)
    hits["particle_id"] = [0, 2, 1, 0, 2]
    write_sample(tmp_path, [hits], [particles])
    assert hit_particles(read_event(tmp_path)).tolist() == [1, 3, 2, 1, 3]
    two = {name: value[:2] for name, value in particles.items() if name != "event_id"}
    write_sample(tmp_path, [hits], [{"event_id": 7, **two}])
    assert hit_particles(read_event(tmp_path)).tolist() == [0, 3, 2, 0, 3]


def test_a_null_particle_is_none(sample: Path) -> None:
    """So a join of polars or pandas leaves hits of no particle."""
    (file,) = (sample / "tracker_hits").iterdir()
    for kind in (pa.uint64(), pa.int64(), pa.uint32()):
        table = pq.read_table(file)
        lists = pa.array([[2, None, 0, 1, None]] * len(EVENTS), pa.list_(kind))
        place = table.schema.get_field_index("particle_id")
        pq.write_table(table.set_column(place, "particle_id", lists), file)
        assert hit_particles(read_event(sample, NAMES[1])).tolist() == [3, 0, 1, 2, 0]


def test_a_particle_that_is_not_listed_is_one_of_unknown_momentum(
    sample: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pruned list lacks particles; the task's metrics count them, too, with one warning."""
    monkeypatch.setattr("bigtrk.console._warned", set())
    hits, particles = rows()
    for row in hits:
        row["particle_id"] = [2, 77, 78, 77, NO_PARTICLE]
    write_sample(sample, hits, particles)
    events = [read_event(sample, name) for name in NAMES]
    assert [hit_particles(event).tolist() for event in events] == [[3, 78, 79, 78, 0]] * 3
    known = particle_kinematics(events[0])
    assert known["particle_id"].tolist() == [1, 2, 3, 78, 79]
    assert np.isnan(known["pt"]).tolist() == [False] * 3 + [True] * 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{sample}/tracker_hits/train-00000-of-00001.parquet, row " in line
    assert " (event 90000): 3 of 5 hits belong to 2 particles, such as 78, missing in" in line
    assert "momentum and vertex of such particles are taken as unknown" in line


def test_linked_folders_are_read_and_hidden_files_are_not(tmp_path: Path, sample: Path) -> None:
    """Large tables lie on other disks; macOS and notebooks leave hidden files beside them."""
    here = tmp_path / "here"
    here.mkdir()
    for table in ("tracker_hits", "particles"):
        (here / table).symlink_to(sample / table)
        (here / f"also_{table}").symlink_to(sample / table)
        (sample / table / "._train-00000-of-00001.parquet").write_bytes(b"\0\5\26\7")
        copies = sample / table / ".ipynb_checkpoints"
        copies.mkdir()
        shutil.copy(sample / table / "train-00000-of-00001.parquet", copies)
    (here / "tracker_hits" / "again").symlink_to(here)
    assert find_events(here) == NAMES
    assert read_event(here, NAMES[2]).particles is not None


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("{table}.parquet", "."),
        ("data/ttbar_pu200_{table}/train-0.parquet", "data/ttbar_pu200"),
        ("v1/{kind}/{table}/hard.tt.v1.{kind}.{table}.events0-9.parquet", "v1"),
    ],
)
def test_files_are_found_by_their_names(tmp_path: Path, path: str, named: str) -> None:
    hits, particles = an_event(3)
    write_rows(tmp_path / path.format(kind="reco", table="tracker_hits"), [hits], HITS)
    write_rows(tmp_path / path.format(kind="truth", table="particles"), [particles], PARTICLES)
    for other in ("calo_hits/train-0.parquet", "tracks/event000000003-tracks.parquet"):
        (tmp_path / other).parent.mkdir()
        (tmp_path / other).write_bytes(b"not read")
    event = read_event(tmp_path / named)
    assert event.name == "event000000003"
    assert event.particles is not None


def test_several_files_and_a_prefix_of_one_of_two_samples(tmp_path: Path) -> None:
    for sample in ("tt_pu0", "tt_pu200"):
        for shard in range(3):
            hits, particles = zip(*(an_event(10 * shard + n) for n in (1, 0)), strict=True)
            file = f"train-{shard}.parquet"
            write_rows(tmp_path / f"{sample}_tracker_hits" / file, [*hits], HITS)
            write_rows(tmp_path / f"{sample}_particles" / file, [*particles], PARTICLES)
    names = [f"event{number:09d}" for number in (0, 1, 10, 11, 20, 21)]
    assert find_events(tmp_path / "tt_pu200") == names
    x = read_event(tmp_path / "tt_pu0", names[3]).hits["x"]
    assert x.tolist() == an_event(11)[0]["x"].tolist()
    assert find_events(tmp_path / "tt_pu200", range(1, 11)) == names[1:3]
    with pytest.raises(InputError, match=r"none of its 6 events, event0+ to event0+21, has a num"):
        find_events(tmp_path / "tt_pu200", range(30, 40))
    with pytest.raises(InputError, match=r"tt_pu2: no such .*zip of events, or the beg"):
        find_events(tmp_path / "tt_pu2")
    with pytest.raises(InputError, match=r"event_id 1 is also in .*name one sample, such as"):
        find_events(tmp_path)


def test_a_file_that_changes_is_read_again(sample: Path) -> None:
    before = read_event(sample, NAMES[0])
    hits, particles = rows()
    hits[0]["x"] = hits[0]["x"][::-1]
    write_sample(sample, hits, particles)
    assert read_event(sample, NAMES[0]).hits["x"].tolist() == before.hits["x"].tolist()[::-1]


def test_other_types_of_the_same_values(tmp_path: Path) -> None:
    """Polars writes large lists; others' integers are signed, and floats double."""
    types = {
        name: pa.float64() if kind == pa.float32() else pa.int64()
        for name, kind in {**HITS, **PARTICLES}.items()
    }
    hits, particles = an_event(1)
    hits["particle_id"] = [0, 1, 2, 1, -1]
    for table, row, names in (("tracker_hits", hits, HITS), ("particles", particles, PARTICLES)):
        columns = {name: pa.array([list(row[name])], pa.large_list(types[name])) for name in names}
        (tmp_path / table).mkdir()
        pq.write_table(pa.table({"event_id": [1], **columns}), tmp_path / table / "a.parquet")
    event = read_event(tmp_path)
    assert event.hits["x"].tolist() == hits["x"].tolist()
    assert hit_particles(event).tolist() == [1, 2, 3, 2, 0]
