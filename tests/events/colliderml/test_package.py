"""Simulated events, read by the package colliderml from where it downloads to."""

from pathlib import Path

import numpy as np
import pytest

from bigtrk.events.event import EventFormat
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.simulation.production import simulate_folder

ID = "CERN/ColliderML-Release-1"


@pytest.mark.filterwarnings("ignore")  # of what the package imports
def test_the_package_reads_simulated_events(tmp_path: Path) -> None:
    loader = pytest.importorskip("colliderml.core.loader")
    local_config_dir = pytest.importorskip("colliderml.core.hf_download").local_config_dir
    sample, cache = tmp_path / "sample", tmp_path / "cache"
    simulate_folder(sample, range(12), 30, 3, None, file_format=EventFormat.COLLIDERML)
    for table in ("tracker_hits", "particles"):
        name = f"toy_pu0_{table}"
        folder = local_config_dir(cache, ID, name) / "data"
        folder.mkdir(parents=True)
        (sample / table).rename(folder / name)
    tables = loader.load_tables(
        {
            "dataset_id": ID,
            "channels": "toy",
            "pileup": "pu0",
            "objects": ["tracker_hits", "particles"],
            "data_dir": cache,
        }
    )
    found = cache / "CERN__ColliderML-Release-1" / "toy_pu0"
    names = find_events(found)
    assert tables["tracker_hits"]["event_id"].to_list() == list(range(12))
    assert len(names) == 12
    for row, name in enumerate(names):
        event = read_event(found, name)
        assert event.truth is not None
        assert event.particles is not None
        hits, particles = (tables[table].row(row, named=True) for table in tables)
        assert hits["x"] == event.hits["x"].tolist()
        assert hits["surface_id"] == event.hits["module_id"].tolist()
        assert particles["px"] == event.particles["px"].tolist()
        stored = np.array(hits["particle_id"], np.uint64) + np.uint64(1)
        assert stored.tolist() == event.truth["particle_id"].tolist()
        # Its own join: a hit's particle is in the list of particles, or 2^64 - 1 is none.
        assert set(hits["particle_id"]) - {2**64 - 1} <= set(particles["particle_id"])
