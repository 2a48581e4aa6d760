"""Simulated events as a ColliderML sample, against TrackML files of the same simulation."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.events.event import Event, EventFormat
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.simulation import production
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.truth import particle_kinematics
from bigtrk.graphs.builders.build_folder import build_folder
from bigtrk.graphs.storage.event_folder import GraphFolder
from bigtrk.training.data.event_source import open_events
from tests.events.colliderml.samples import HITS, PARTICLES

COLLIDERML = EventFormat.COLLIDERML


def simulated(out: Path, events: range, particles: int = 20, with_truth: bool = True) -> None:
    simulate_folder(out, events, particles, 3, None, with_truth, COLLIDERML)


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and bytes of every table, by name."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*.parquet")
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    simulated(folder / "colliderml", range(12), 60)
    simulate_folder(folder / "trackml", range(12), 60, 3, None)
    return folder


def test_the_columns_are_the_published_ones(both: Path) -> None:
    for table, types in (("tracker_hits", HITS), ("particles", PARTICLES)):
        files = sorted((both / "colliderml" / table).iterdir())
        numbers = ["train-000000000-000000009.parquet", "train-000000010-000000011.parquet"]
        assert [path.name for path in files] == numbers
        assert pq.ParquetFile(files[0]).num_row_groups == 10
        written = pq.read_schema(files[0])
        assert {name: written.field(name).type for name in written.names} == {
            "event_id": pa.uint32(),
            **{name: pa.list_(kind) for name, kind in types.items()},
        }


def test_the_events_are_those_of_the_other_format(both: Path) -> None:
    """Its float32 are those that TrackML's files write in decimals."""
    names = find_events(both / "trackml")
    assert find_events(both / "colliderml") == names
    for name in names[::11]:
        ours, theirs = (read_event(both / form, name) for form in ("colliderml", "trackml"))
        assert ours.cells is None
        for table in ("hits", "particles", "truth"):
            columns, expected = getattr(ours, table), getattr(theirs, table)
            assert not set(columns) - {*expected, "primary"}  # which TrackML's ids say
            for column in set(columns) - {"hit_id", "primary"}:
                wanted = expected[column]
                if wanted.dtype.kind == "f":
                    wanted = wanted.astype(np.float32)
                assert np.array_equal(columns[column], wanted), (table, column)
        pt, wanted = (particle_kinematics(event)["pt"] for event in (ours, theirs))
        assert pt.tolist() == pytest.approx(wanted.tolist(), rel=3e-7)


def test_the_graphs_are_those_of_the_other_format(both: Path, tmp_path: Path) -> None:
    graphs = []
    for form in ("colliderml", "trackml"):
        [name] = names = find_events(both / form)[:1]
        manifest = build_folder(both / form, tmp_path / form, names=names)
        assert manifest["parameters"]["from"] == form
        graphs.append(GraphFolder(tmp_path / form).read(name))
    ours, theirs = graphs
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert ours.n_edges > 100
    for column in ("y", "particle_id", "modules"):
        found, wanted = getattr(ours, column), getattr(theirs, column)
        assert found is not None
        assert torch.equal(found, wanted)
    same = theirs.node_features[:, : ours.node_features.shape[1]]
    torch.testing.assert_close(ours.node_features, same, rtol=1e-6, atol=1e-5)
    with pytest.raises(InputError, match="has no node feature 'cluster_count'; choose from r"):
        open_events([tmp_path / "colliderml"])[0].check(["cluster_count"], ["dr"], False)
    # Ids of hits are places in lists, from 0; TrackML's begin at 1.
    assert ours.hit_id is not None
    assert theirs.hit_id is not None
    assert torch.equal(ours.hit_id, theirs.hit_id - 1)


def test_what_trackml_has_no_column_for(both: Path) -> None:
    """Truth beyond TrackML's: against the decimals of its files, by the definitions."""
    table = pq.read_table(both / "colliderml" / "particles" / "train-000000000-000000009.parquet")
    with gzip.open(both / "trackml" / "event000000004-particles.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    columns = {name: table.column(name)[4].as_py() for name in table.column_names}
    for place, row in enumerate(rows):
        px, py, pz, vx, vy, vz = (float(row[n]) for n in ("px", "py", "pz", "vx", "vy", "vz"))
        p, phi = np.sqrt(px**2 + py**2 + pz**2), np.arctan2(py, px)
        # The point of the line nearest to the beam, at the signed path s from the vertex.
        s = -(vx * np.cos(phi) + vy * np.sin(phi))
        x, y = vx + s * np.cos(phi), vy + s * np.sin(phi)
        wanted = {
            "particle_id": int(row["particle_id"]) - 1,
            "pdg_id": int(float(row["q"])) * 211,
            "energy": np.hypot(p, 0.13957039),
            "perigee_d0": y * np.cos(phi) - x * np.sin(phi),
            "perigee_z0": vz + s * pz / np.hypot(px, py),
            "time": np.sqrt(vx**2 + vy**2 + vz**2) / 299.792458,
            "primary": int(row["particle_id"]) % 2**24 == 0,
            "num_tracker_hits": int(row["nhits"]),
            "parent_id": -1,
        }
        for name, value in wanted.items():
            assert columns[name][place] == pytest.approx(value, rel=1e-4, abs=1e-4), name
        assert columns["vertex_primary"][place] >= 1


def test_a_simulation_that_is_killed_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops in its second file, or between placing that file's particles and its hits."""
    out = tmp_path / "out"
    made = simulate_event

    def stopped(particles: int, seed: int, event_id: int, *rest: object) -> Event:
        if event_id == 12:
            raise KeyboardInterrupt
        return made(particles, seed, event_id, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(production, "simulate_event", stopped)
    with pytest.raises(KeyboardInterrupt):
        simulated(out, range(15))
    assert len(find_events(out)) == 10
    assert len(list(out.rglob("*"))) == 6  # a record, detectors, two folders of one table each
    monkeypatch.setattr(production, "simulate_event", made)
    simulated(out, range(15))
    whole = content(out)
    (out / "tracker_hits" / "train-000000010-000000014.parquet").unlink()
    simulated(out, range(20, 21))  # another's part: what is unfinished may be being written
    assert "particles/train-000000010-000000014.parquet" in content(out)
    simulated(out, range(14))
    assert find_events(out)[-1] == "event000000020"
    assert read_event(out, "event000000013").particles is not None
    assert "particles/train-000000010-000000014.parquet" not in content(out)
    kept = "particles/train-000000000-000000009.parquet"
    assert content(out)[kept] == whole[kept]


def test_a_number_that_does_not_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="event 4294967296: its numbers do not fit ColliderML's"):
        simulated(tmp_path / "out", range(2**32, 2**32 + 1))
    assert not list((tmp_path / "out").rglob("*train*"))
