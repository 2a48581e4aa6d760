"""Graph folders: what is written is read; damage and mix-ups are named."""

import os
import time
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from torch import Tensor

from bigtrk.disk.files import seal
from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph, ParticleTable
from bigtrk.graphs.storage import event_folder
from bigtrk.graphs.storage.event_folder import MANIFEST, GraphFolder, file_of, write_manifest
from bigtrk.graphs.storage.graph_folder import GraphToMake, fill_folder, write_graph
from bigtrk.training.data.event_source import open_events


def a_graph(seed: int = 1) -> EventGraph:
    return build_graph(
        simulate_event(40, seed=seed, event_id=seed), WindowBuilder(builtin_windows())
    )


def write_folder(folder: Path, *graphs: EventGraph) -> GraphFolder:
    for graph in graphs:
        write_graph(folder, graph, {"note": "kept"})
    write_manifest(folder, "graphs", {}, [graph.name for graph in graphs])
    return GraphFolder(folder)


def assert_same(found: object, expected: object) -> None:
    """Every field of two dataclasses agrees, tensors bit for bit (NaN equals NaN)."""
    assert isinstance(expected, EventGraph | ParticleTable)
    assert type(found) is type(expected)
    for field in fields(expected):
        a, b = getattr(found, field.name), getattr(expected, field.name)
        if isinstance(b, Tensor):
            assert a.dtype == b.dtype, field.name
            assert torch.equal(a.nan_to_num(), b.nan_to_num()), field.name
            assert torch.equal(a.isnan(), b.isnan()), field.name
        elif isinstance(b, ParticleTable):
            assert_same(a, b)
        else:
            assert a == b, field.name


def test_round_trip(tmp_path: Path) -> None:
    graph = a_graph()
    assert graph.particles is not None
    graph.particles.pt[0] = float("nan")
    folder = write_folder(tmp_path, graph)
    assert folder.events == [graph.name]
    assert_same(folder.read(graph.name), graph)


def test_what_lies_beside_a_graph(tmp_path: Path) -> None:
    """It is read by its section; a file in which it is damaged is made again."""
    graph, own = a_graph(), {"lot": torch.arange(50)}
    task = GraphToMake(graph.name, "source", lambda: (graph, {}, {"mine": own}))
    fill_folder(tmp_path / "graphs", [task], 1, {}, "graphs")
    folder, path = GraphFolder(tmp_path / "graphs"), file_of(tmp_path / "graphs", graph.name)
    assert_same(folder.read(graph.name), graph)
    assert torch.equal(folder.open(graph.name).read("mine")["lot"], own["lot"])
    whole = path.read_bytes()
    at = whole.index(own["lot"].numpy().tobytes())
    path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    with pytest.raises(InputError, match="is damaged in section 'mine'"):
        folder.open(graph.name).read("mine")
    fill_folder(tmp_path / "graphs", [task], 1, {}, "graphs")
    assert torch.equal(folder.open(graph.name).read("mine")["lot"], own["lot"])


def test_an_empty_graph(tmp_path: Path) -> None:
    rows, no_edges = torch.empty(0, 1), torch.empty(2, 0).long()
    empty = EventGraph("event000000009", ("r",), ("dr",), rows, no_edges, rows)
    assert_same(write_folder(tmp_path, empty).read(empty.name), empty)


def test_a_file_the_manifest_does_not_describe_is_refused(tmp_path: Path) -> None:
    graph = a_graph()
    folder = write_folder(tmp_path, graph)
    write_graph(tmp_path, replace(graph, node_features=graph.node_features + 1), {})
    with pytest.raises(InputError, match="differs from its entry in manifest"):
        folder.read(graph.name)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Mock:
    noted = Mock(side_effect=event_folder.digest)
    monkeypatch.setattr(event_folder, "digest", noted)
    return noted


def test_content_is_hashed_once_as_long_as_its_file_stays(tmp_path: Path, hashed: Mock) -> None:
    """A change is found at the next read, if the size is the same, too."""
    folder = write_folder(tmp_path, a_graph())
    path = file_of(tmp_path, folder.events[0])
    os.utime(path, (1e9, 1e9))
    hashed.reset_mock()
    source, other_run = open_events([tmp_path])[0], open_events([tmp_path])[0]
    epochs = [source.read(0, 1) for _ in range(2)]
    assert hashed.call_count == 2, "the graph and its particles"
    assert torch.equal(epochs[0].node_features, epochs[1].node_features)
    other_run.read(0, 1)
    assert hashed.call_count == 4
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="is damaged in section"):
        source.read(0, 1)


def test_a_file_that_was_just_written_is_hashed_again(tmp_path: Path, hashed: Mock) -> None:
    """Its clock may not have ticked since, so another write could have left the same time."""
    folder = write_folder(tmp_path, a_graph())
    written = file_of(tmp_path, folder.events[0]).stat().st_mtime_ns
    hashed.reset_mock()
    with patch.object(time, "time_ns", lambda: written + 10**9):
        assert folder.read(folder.events[0]).n_edges == folder.read(folder.events[0]).n_edges
    assert hashed.call_count == 4


def test_other_folders_are_refused(tmp_path: Path) -> None:
    manifest = write_folder(tmp_path, a_graph()).manifest
    (tmp_path / MANIFEST).write_bytes(seal({**manifest, "format": "bigtrk sectors"}))
    with pytest.raises(InputError, match="holds sectors; name a folder of graphs"):
        GraphFolder(tmp_path)
