"""`bigtrk reconstruct` and `bigtrk submit` with the classifier's edges in files, as typed."""

from pathlib import Path
from typing import Any

import pytest

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from bigtrk.parallel import host
from bigtrk.training import spill
from tests.distributed.pipelines import write_pipeline
from tests.programs import run_here

COMMAND = "bigtrk reconstruct pipeline events"
MOST = 20_000  # edges, of which no event has more


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline, two events, and a folder for edges, where one types."""
    events = [simulate_event(60, seed=3, event_id=i) for i in range(2)]
    for event in events:
        write_event(event, tmp_path / "events")
    write_pipeline(tmp_path / "pipeline", events[0])
    (tmp_path / "edges").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Types the command with more words: exit status, files of tracks, stderr."""

    def run(out: str, words: str = "") -> tuple[int, dict[str, bytes], str]:
        command = f"{COMMAND} {out} {words}".split()
        status, _, said = run_here(command, monkeypatch, capsys)
        made = Path(out).iterdir() if Path(out).exists() else []
        return status, {path.name: path.read_bytes() for path in made}, said

    return run


def test_tracks_are_the_same_with_edges_in_files(
    typed: Any, file_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, expected, _ = typed("in_memory")
    assert status == 0
    assert len(expected) > 2
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    status, found, said = typed("in_files", f"--spill edges --max-edges {MOST}")
    assert (status, found) == (0, expected)
    assert len(file_sizes) == 4, "two tensors of each event"
    assert "GiB of edges go to edges, which has" in said


def test_space_is_for_the_edges_that_are_allowed(
    typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, said = typed("out", "--spill edges")
    assert status == 2
    assert "--spill=edges: how many edges a pipeline makes is not known" in said
    assert "add --max-edges N" in said
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(spill, "free_bytes", lambda _: 1000)
    status, _, said = typed("out", f"--spill edges --max-edges {MOST}")
    assert status == 2
    assert f"has 0.0 GiB free, and the edges of a graph at --max-edges {MOST} need" in said
