"""`bigtrk evaluate` and `bigtrk infer` with edges in files, as they are typed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.storage.event_folder import write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.parallel import host
from bigtrk.training.model_files import build_model, describe
from bigtrk.training.run_folder import save_model
from bigtrk.training.settings import Configuration
from tests.programs import run_here

COMMANDS = {
    "evaluate": "bigtrk evaluate run graphs --tracks --json",
    "infer": "bigtrk infer run graphs tracks --min-hits 2 --json",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An event's graph, a model that was not trained, and a folder for edges, where one types."""
    event = simulate_event(60, seed=3, event_id=0)
    graph, record = build_with_record(event, WindowBuilder(builtin_windows()))
    write_graph(tmp_path / "graphs", graph, record)
    write_manifest(tmp_path / "graphs", "graphs", {}, [graph.name])
    configuration = Configuration.model_validate({"model": {"hidden": 8, "layers": 3}})
    torch.manual_seed(1)
    (tmp_path / "run").mkdir()
    save_model(
        tmp_path / "run", build_model(configuration).state_dict(), describe(configuration, [])
    )
    (tmp_path / "edges").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command: exit status, what it found, stderr."""

    def run(command: str) -> tuple[int, Any, str]:
        status, printed, said = run_here(command.split(), monkeypatch, capsys)
        if status:
            return status, None, said
        found = json.loads(printed)
        if Path("tracks").exists():
            return status, [file.read_bytes() for file in sorted(Path("tracks").iterdir())], said
        return status, {**found, "made": None}, said

    return run


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_is_found_is_the_same_with_edges_in_files(
    command: str, typed: Any, file_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = typed(command)[1]
    shutil.rmtree("tracks", ignore_errors=True)
    spilling = f"{command} --spill edges"
    assert typed(spilling)[1] == expected
    assert not file_sizes, "memory has room"
    monkeypatch.setattr(host, "memory_bytes", lambda: 1000)
    status, found, said = typed(spilling)
    assert (status, found) == (0, expected)
    assert len(file_sizes) == 2
    assert "GiB of edges go to edges, which has" in said
