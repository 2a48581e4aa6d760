"""A ColliderML sample from hits to a score, beside the package on the same files."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from colliderml.polars import explode_event_table_pyarrow
from colliderml.tasks.tracking import metrics as public

from bigtrk.events.event import EventFormat
from bigtrk.events.reader import find_events, read_event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.tracks.files import write_tracks
from tests.programs import CHECKOUT, Run, output_of, run_in_one

SECTION = (CHECKOUT / "docs" / "colliderml.md").read_text().split("## Submission and score")[1]
OF_HITS = {
    "trackml_eff": public.trackml_weighted_efficiency,
    "fake_rate": public.fake_rate,
    "dup_rate": public.duplicate_rate,
}


@pytest.fixture
def sample(workdir: Path) -> Path:
    """Starts in a folder with the events of a sample, and tracks that are half right."""
    numbers = range(90_000, 90_003)
    simulate_folder(Path("events"), numbers, 60, 2, None, file_format=EventFormat.COLLIDERML)
    draw = np.random.default_rng(8)
    for name in find_events(Path("events")):
        event = read_event(Path("events"), name)
        assert event.truth is not None
        track_id = event.truth["particle_id"].astype(np.int64) % 997
        track_id[track_id % 3 == 0] = -1
        wrong = draw.random(len(track_id))
        track_id[wrong < 0.2] = -1
        track_id[wrong > 0.8] = draw.integers(1000, 1006, (wrong > 0.8).sum())
        write_tracks(Path("tracks"), name, event.hits["hit_id"].astype(np.int64), track_id)
    return workdir / "events"


def flat(table: str, index: str) -> pa.Table:
    """Reads a table as the package's task does."""
    (file,) = Path("events", table).glob("*.parquet")
    return explode_event_table_pyarrow(pq.read_table(file), index_name=index)


def prune_particles() -> None:
    """Leaves every other particle out of the lists, and all hits in theirs."""
    (file,) = Path("events", "particles").glob("*.parquet")
    table = pq.read_table(file)
    rows = [
        {name: value if name == "event_id" else value[::2] for name, value in row.items()}
        for row in table.to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), file)


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize("pruned", [False, True])
def test_the_package_gives_the_same(pruned: bool, run_program: Run) -> None:
    if pruned:
        prune_particles()

    def typed(command: str) -> str:
        return output_of(run_program(command.split()))

    typed("bigtrk submit tracks events mine.parquet --majority-particles")
    found = json.loads(typed("bigtrk score mine.parquet events --task colliderml --json"))
    mine = pq.read_table("mine.parquet")
    hits, particles = flat("tracker_hits", "hit_id"), flat("particles", "particle_index")
    assert mine.num_rows == hits.num_rows
    in_tracks = mine.filter(pc.greater_equal(mine.column("track_id"), 0))
    for name, rows in (("submitted", mine), ("in_tracks", in_tracks)):
        expected = {key: metric(rows, hits) for key, metric in OF_HITS.items()}
        expected["physics_eff_pt1"] = public.physics_eff_pt1(rows, particles)
        assert found["colliderml"][name] == pytest.approx(expected, abs=1e-6)
        assert all(0 < value < 1 for value in expected.values()), expected
    # Particles below 1 GeV and secondaries, in several events, are among those named.
    assert len(set(mine.column("majority_particle_id").to_pylist())) > 30


def test_the_documents_commands_run(tmp_path: Path) -> None:
    """The section's block, and that of docs/exchange.md on the tracks that it makes."""
    page = (CHECKOUT / "docs" / "exchange.md").read_text()
    section = page.split("## Tracks and graphs for other software")[1]
    blocks = [re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL) for text in (SECTION, section)]
    assert [len(found) for found in blocks] == [1, 1]
    commands = [line for found in blocks for block in found for line in block.splitlines()]
    smaller = [line.replace("--particles 200", "--particles 60") for line in commands]
    run_in_one([line.removeprefix("python ") for line in smaller], tmp_path)
    for made in ("mine.parquet", "submission.csv", "lists.parquet"):
        assert (tmp_path / made).is_file()
    assert len(list((tmp_path / "acts").iterdir())) == 2 * 3
    assert len(list((tmp_path / "npz").iterdir())) == 3
