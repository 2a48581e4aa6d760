"""`bigtrk submit` of a pipeline: the tracks of `bigtrk reconstruct`."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bigtrk.events.event import EventFormat
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.production import simulate_folder
from bigtrk.tracks.files import open_tracks
from tests.distributed.pipelines import write_pipeline
from tests.programs import Run, output_of


@pytest.fixture
def home(workdir: Path) -> Path:
    """Starts in a folder with a pipeline and hits of a ColliderML sample without truth."""
    simulate_folder(
        Path("hits"), range(2), 60, 3, None, with_truth=False, file_format=EventFormat.COLLIDERML
    )
    write_pipeline(Path("pipeline"), read_event(Path("hits"), "event000000000"))
    return workdir


@pytest.mark.usefixtures("home")
def test_what_is_submitted_is_what_reconstruct_makes(run_program: Run) -> None:
    submit = ["bigtrk", "submit", "pipeline", "hits", "mine.parquet"]
    assert output_of(run_program(submit)).startswith("mine.parquet: 2 events, ")
    made = run_program(["bigtrk", "reconstruct", "pipeline", "hits", "made"])
    assert made[0] == 0
    rows, tracks = pq.read_table("mine.parquet").to_pylist(), open_tracks(Path("made"))
    for number in (0, 1):
        listed = tracks.read(number)
        own = [(row["hit_id"], row["track_id"]) for row in rows if row["event_id"] == number]
        n_hits = len(read_event(Path("hits"), f"event{number:09d}", with_truth=False).hits["x"])
        assert [hit for hit, _ in own] == list(range(n_hits))
        found = dict(zip(listed.hit_id.tolist(), listed.track_id.tolist(), strict=True))
        assert own == [(hit, found.get(hit, -1)) for hit in range(n_hits)]
