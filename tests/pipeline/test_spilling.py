"""`bigtrk evaluate`, `infer` and `reconstruct` with edges in files, as they are typed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.parallel import ranks
from bigtrk.training import spill
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from tests.distributed.graphs import write_graphs
from tests.distributed.pipelines import write_pipeline
from tests.programs import Run

RECONSTRUCT = "reconstruct pipeline events tracks"
MOST = "--spill edges --max-edges 20000"  # edges, of which no event has more
# Each command, the words that spill edges, and its files: two tensors of each event.
COMMANDS = [
    ("evaluate run graphs --tracks", "--spill edges", 2),
    ("infer run graphs tracks --hits-min 2", "--spill edges", 2),
    (RECONSTRUCT, MOST, 4),
]
Typed = Callable[[str], tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two events, a pipeline, a graph, a model that was not trained, and a folder for edges."""
    events = [simulate_event(60, seed=3, event_id=i) for i in range(2)]
    for event in events:
        write_event(event, tmp_path / "events")
    write_pipeline(tmp_path / "pipeline", events[0])
    graph, record = build_with_record(events[0], WindowBuilder(builtin_windows()))
    write_graphs(tmp_path / "graphs", [graph], **record)
    configuration = Configuration.model_validate({"model": {"hidden": 8, "layers": 3}})
    torch.manual_seed(1)
    for name in ("run", "edges"):
        (tmp_path / name).mkdir()
    weights = build_model(configuration).state_dict()
    save_model(tmp_path / "run", weights, describe(configuration, []))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(run_program: Run) -> Typed:
    """Types a command: exit status, the files of tracks or the evaluation, stderr."""

    def run(command: str) -> tuple[int, Any, str]:
        shutil.rmtree("tracks", ignore_errors=True)
        words = ["bigtrk", *command.split(), "--json"]
        status, printed, said = run_program(words)
        if Path("tracks").exists():
            return status, {x.name: x.read_bytes() for x in Path("tracks").iterdir()}, said
        return status, None if status else {**json.loads(printed), "made": None}, said

    return run


@pytest.mark.parametrize(("command", "spilling", "n_files"), COMMANDS)
def test_what_is_found_is_the_same_with_edges_in_files(
    command: str,
    spilling: str,
    n_files: int,
    typed: Typed,
    file_sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status, expected, _ = typed(command)
    assert status == 0
    assert len(expected) > 1
    assert typed(f"{command} {spilling}")[1] == expected
    assert not file_sizes, "memory has room"
    monkeypatch.setattr(ranks, "memory_bytes", lambda: 1000)
    status, found, said = typed(f"{command} {spilling}")
    assert (status, found) == (0, expected)
    assert len(file_sizes) == n_files
    assert "GiB of edges go to the folder edges (" in said


def test_space_is_for_the_edges_that_are_allowed(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, said = typed(f"{RECONSTRUCT} --spill edges")
    assert status == 2
    assert "--spill=edges: needs a limit of edges per rank" in said
    assert "add --max-edges N" in said
    monkeypatch.setattr(ranks, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(spill, "free_bytes", lambda _: 1000)
    status, _, said = typed(f"{RECONSTRUCT} {MOST}")
    assert status == 2
    assert "has 0.0 GiB free, and the edges of a graph at --max-edges 20000 need" in said
