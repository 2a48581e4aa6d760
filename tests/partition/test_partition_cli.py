import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bigtrk.graphs.event_graph import EventGraph, whole_sector
from bigtrk.graphs.storage.event_folder import GraphFolder, SectionFile, file_of, write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.sector_folder import SectorFolder, write_sectors
from bigtrk.launchers import PLACES
from bigtrk.training.data.event_source import open_events
from partition.cli import main
from partition.cutting import CutSettings, cut_event

N_NODES = 200
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)


def a_graph(number: int, n_nodes: int = N_NODES, n_edges: int = 1000) -> EventGraph:
    """Nodes along phi, joined to neighbours at most 9 nodes on."""
    generator = torch.Generator().manual_seed(number)
    source = torch.randint(max(n_nodes - 9, 1), (n_edges,), generator=generator)
    step = torch.randint(1, 10, (n_edges,), generator=generator)
    phi = torch.linspace(-3.1, 3.1, n_nodes)
    return EventGraph(
        name=f"event{number:09}",
        node_feature_names=("r", "phi", "z"),
        edge_feature_names=("dphi",),
        node_features=torch.stack([torch.ones(n_nodes), phi, phi], dim=1),
        edge_index=torch.stack([source, source + step]),
        edge_features=torch.rand(n_edges, 1, generator=generator),
        y=torch.rand(n_edges, generator=generator) < 0.5,
    )


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    return write(tmp_path / "graphs", [a_graph(number) for number in range(4)])


def write(folder: Path, graphs: list[EventGraph], source: str = "a") -> Path:
    for graph in graphs:
        write_graph(folder, graph, {"edge_scale": [2.5], "made_from": {"source": source}})
    write_manifest(folder, "graphs", {}, [graph.name for graph in graphs])
    return folder


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments=[*map(str, arguments)])
    return int(ended.value.code or 0)


def report_of(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "partition.json").read_text())
    return content


def test_the_report_counts_what_lies_in_the_sectors(tmp_path: Path) -> None:
    graphs = write(tmp_path / "graphs", [a_graph(0), a_graph(1, n_edges=300)])
    out = tmp_path / "out"
    assert run(graphs, out, "--parts", 4, "--workers", 1, "--method", "wedges") == 0
    folder, report = SectorFolder(out), report_of(out)
    cut, halo, largest, mean = 0, 0, 0.0, 0.0
    for event, n_edges in zip(folder.events, (1000, 300), strict=True):
        sectors = [folder.read(event, part, 4) for part in range(4)]
        edges = [sector.n_edges for sector in sectors]
        found = report["events"][event]
        foreign = sum(int((~sector.owns_edge).sum()) for sector in sectors)
        rows = sum(sum(sector.recv_splits) for sector in sectors)
        assert found["cut_fraction"] == pytest.approx(foreign / n_edges)
        assert found["halo_fraction"] == pytest.approx(rows / N_NODES)
        assert found["edge_imbalance"] == pytest.approx(max(edges) / (sum(edges) / 4))
        assert 1 <= found["neighbours"] <= 3
        assert found["seconds"] > found["metis_seconds"] == 0
        cut, halo = cut + foreign, halo + rows
        largest, mean = largest + max(edges), mean + sum(edges) / 4
    assert report["overall"]["cut_fraction"] == pytest.approx(cut / 1300)
    assert report["overall"]["halo_fraction"] == pytest.approx(halo / (2 * N_NODES))
    assert report["overall"]["edge_imbalance"] == pytest.approx(largest / mean)


def test_sectors_hold_at_most_max_edges(tmp_path: Path) -> None:
    sizes = [100, 1000, 1990]
    graphs = write(tmp_path / "graphs", [a_graph(i, n_edges=size) for i, size in enumerate(sizes)])
    out = tmp_path / "out"
    # 1000 edges would fit into two sectors of 500, were it not for the cut edges.
    assert run(graphs, out, "--max-edges", 500, "--workers", 1) == 0
    folder = SectorFolder(out)
    assert [folder.parts(event) for event in folder.events] == [1, 4, 8]
    for event in folder.events:
        assert max(s["edges"] for s in folder.record(event)["sectors"]) <= 500


def test_keeps_what_is_done_and_nothing_else(
    tmp_path: Path, graphs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    first, second, third, fourth = GraphFolder(graphs).events
    arguments = (graphs, out, "--workers", 1, "--parts")
    assert run(*arguments, 2) == 0
    changed = a_graph(1, n_edges=900)
    write(graphs, [a_graph(0), changed, a_graph(2), a_graph(3)])
    file_of(out, third).unlink()
    file_of(out, fourth).write_bytes(b"half a fi")
    before = {event: file_of(out, event).stat().st_mtime_ns for event in (first, second)}
    assert run(*arguments, 2) == 0
    assert file_of(out, first).stat().st_mtime_ns == before[first]
    assert file_of(out, second).stat().st_mtime_ns != before[second]
    folder = SectorFolder(out)
    assert folder.record(second)["edges"] == 900
    assert [folder.read(event, 0, 1).n_nodes for event in folder.events] == [N_NODES] * 4
    assert run(*arguments, 4) == 0
    assert f"cutting 4 events ({first} first) again: " in capsys.readouterr().err
    assert file_of(out, first).stat().st_mtime_ns != before[first]
    assert SectorFolder(out).parts(first) == 4


def as_srun(monkeypatch: pytest.MonkeyPatch, tasks: int) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", str(tasks))
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", str(tasks))
    monkeypatch.setenv("SLURM_LOCALID", "0")
    monkeypatch.setenv("SLURM_NODEID", "0")


def test_tasks_of_an_srun_share_the_events(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    as_srun(monkeypatch, tasks=3)
    for task, files in (("2", 1), ("0", 3), ("1", 4)):
        assert not (out / "manifest.json").exists()
        monkeypatch.setenv("SLURM_PROCID", task)
        assert run(graphs, out, "--parts", 2, "--workers", 1) == 0
        assert len(list(out.glob("*.safetensors"))) == files
    printed = capsys.readouterr().out
    assert "left to the other tasks: 1 event" in printed
    assert "s: seconds to read, partition and cut, without writing" in printed
    assert len(SectorFolder(out).events) == len(report_of(out)["events"]) == 4


def test_a_task_that_fails_first_leaves_the_others_a_whole_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Path, capsys: Capture
) -> None:
    out, (first, *others) = tmp_path / "out", GraphFolder(graphs).events
    content = bytearray(file_of(graphs, first).read_bytes())
    content[len(content) // 2] ^= 255
    file_of(graphs, first).write_bytes(content)
    as_srun(monkeypatch, tasks=2)
    for task, status in (("0", 2), ("1", 0)):
        monkeypatch.setenv("SLURM_PROCID", task)
        assert run(graphs, out, "--parts", 2, "--workers", 1) == status
    assert "left to the other tasks: 2 events" in capsys.readouterr().out
    assert SectorFolder(out).events == others
    assert list(report_of(out)["failed"]) == [first]
    assert not list(out.glob(".*"))


SALLOC = {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}


def test_variables_of_pods_and_of_salloc_leave_no_event_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Path
) -> None:
    for variables in (SALLOC, {"RANK": "0", "WORLD_SIZE": "2"}):
        out = tmp_path / str(len(variables))
        with monkeypatch.context() as patch:
            if variables is SALLOC:
                as_srun(patch, tasks=1)
            for name, value in variables.items():
                patch.setenv(name, value)
            assert run(graphs, out, "--parts", 2, "--workers", 1) == 0
        assert len(SectorFolder(out).events) == 4


def test_worker_processes_write_the_same_sectors(tmp_path: Path, graphs: Path) -> None:
    command = [sys.executable, "-m", "partition", str(graphs), str(tmp_path / "two")]
    options = ["--parts", "4", "--seed", "3"]
    command += [*options, "--workers", "2", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert json.loads(ended.stdout) == report_of(tmp_path / "two")
    assert run(graphs, tmp_path / "one", "--workers", 1, *options) == 0
    two, one = SectorFolder(tmp_path / "two"), SectorFolder(tmp_path / "one")
    source = GraphFolder(graphs)
    assert two.events == one.events == source.events
    for event in one.events:
        record, whole = one.record(event), whole_sector(source.read(event))
        assert two.record(event)["digests"] == record["digests"]
        assert torch.equal(one.read(event, 0, 1).edge_features, whole.edge_features)
        assert record["edge_scale"] == [2.5]
        assert record["source_digests"] == source.record(event)["digests"]
        assert record["quality"]["metis_seconds"] > 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--parts", 300), "event000000000: 200 nodes cannot be cut into 300 sectors"),
        (("--max-edges", 12), r"event000000000: one node has \d+ edges.*use --max-edges \d+"),
        (("--parts", 2, "--max-edges", 2), "either --parts or --max-edges"),
    ],
)
def test_bad_requests_end_in_one_line_and_leave_nothing(
    tmp_path: Path, graphs: Path, capsys: Capture, options: tuple[object, ...], complaint: str
) -> None:
    out = tmp_path / "out"
    assert run(graphs, out, "--workers", 1, *options) == 2
    error = capsys.readouterr().err
    assert re.search(complaint, error)
    assert not out.exists()


def test_folders_of_something_else_are_refused(
    tmp_path: Path, graphs: Path, capsys: Capture
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    for source, out, said in (
        (graphs, graphs, "holds graphs, not sectors"),
        (tmp_path / "none", tmp_path / "out", "no such folder"),
        (write(tmp_path / "empty", []), tmp_path / "out", "holds no graphs"),
        (graphs, other, "not from bigtrk (it has no checksum)"),
    ):
        assert run(source, out, "--parts", 2) == 2
        assert said in capsys.readouterr().err
    assert (other / "manifest.json").read_text() == "{}"


def test_a_damaged_graph_is_named_and_the_others_are_cut(
    tmp_path: Path, graphs: Path, capsys: Capture
) -> None:
    out, command = tmp_path / "out", (graphs, tmp_path / "out", "--parts", 2, "--workers", 1)
    first, *others = GraphFolder(graphs).events
    path = file_of(graphs, first)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert run(*command) == 2
    [said] = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert f"1 of 4 events were not cut: {path}: is damaged in section 'graph'" in said
    assert SectorFolder(out).events == others == list(report_of(out)["events"])
    assert list(report_of(out)["failed"]) == [first]
    cut = {event: file_of(out, event).stat().st_mtime_ns for event in others}
    path.write_bytes(good)
    assert run(*command) == 0
    assert SectorFolder(out).events == [first, *others]
    assert report_of(out)["failed"] == {}
    assert cut == {event: file_of(out, event).stat().st_mtime_ns for event in others}


def cut_or_die(graphs: Path, out: Path, event: str, settings: CutSettings) -> None:
    """Stands in for METIS, which crashes on an event."""
    if event == "event000000001":
        os.kill(os.getpid(), signal.SIGSEGV)
    cut_event(graphs, out, event, settings)


def test_an_event_that_ends_its_worker_is_named_and_the_others_are_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graphs: Path, capsys: Capture
) -> None:
    monkeypatch.setattr("partition.cutting.cut_event", cut_or_die)
    out = tmp_path / "out"
    assert run(graphs, out, "--parts", 2, "--workers", 2) == 2
    said = "1 of 4 events were not cut: event000000001: its worker process died"
    assert said in capsys.readouterr().err
    assert SectorFolder(out).events == [f"event{number:09}" for number in (0, 2, 3)]


@pytest.fixture
def one_small(tmp_path: Path) -> Path:
    """Four graphs, the second of which has five nodes and no edge."""
    graphs = [a_graph(number) for number in range(4)]
    return write(tmp_path / "graphs", [graphs[0], a_graph(1, 5, 0), *graphs[2:]])


def test_an_event_of_fewer_nodes_than_parts_is_named_and_the_others_are_cut(
    tmp_path: Path, one_small: Path, capsys: Capture
) -> None:
    out, command = tmp_path / "out", (one_small, tmp_path / "out", "--workers", 1)
    assert run(*command, "--parts", 8, "--json") == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "bigtrk-partition: error: 1 of 4 events were not cut: event000000001: 5 nodes cannot be "
        "cut into 8 sectors; use --parts 5 or less, or a larger --max-edges, or train on the "
        "whole graph"
    ]
    assert json.loads(printed.out) == report_of(out)
    assert SectorFolder(out).events == [f"event{number:09}" for number in (0, 2, 3)]
    assert [event.parts for event in open_events([one_small, out])] == [8, 1, 8, 8]
    assert run(*command, "--parts", 4) == 0
    assert len(SectorFolder(out).events) == 4


def test_the_last_task_of_an_srun_does_not_wait_for_what_cannot_be_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_small: Path
) -> None:
    """Whoever's share it is in says so."""
    as_srun(monkeypatch, tasks=2)
    for task, status in (("1", 2), ("0", 0)):
        monkeypatch.setenv("SLURM_PROCID", task)
        command = (one_small, tmp_path / "out", "--parts", 8, "--workers", 1)
        assert run(*command) == status
    assert len(SectorFolder(tmp_path / "out").events) == 3


def test_sectors_that_do_not_fit_together_are_cut_again(tmp_path: Path, graphs: Path) -> None:
    """They are, though all checksums are right: nobody would read them; they were kept for ever."""
    out, command = tmp_path / "out", (graphs, tmp_path / "out", "--parts", 2, "--workers", 1)
    assert run(*command) == 0
    good = SectorFolder(out)
    event = good.events[0]
    sectors = [good.read(event, part, 2) for part in range(2)]
    repeated = sectors[1].edge_id.clone()
    repeated[0] = repeated[1]
    bad = [sectors[0], replace(sectors[1], edge_id=repeated)]
    write_sectors(out, bad, SectionFile(file_of(out, event)).record)
    assert run(*command) == 0
    assert torch.equal(SectorFolder(out).read(event, 1, 2).edge_id, sectors[1].edge_id)


def test_folders_cut_into_one_keep_all_events_and_refuse_another_of_the_same_name(
    tmp_path: Path, capsys: Capture
) -> None:
    out, options = tmp_path / "out", ("--parts", 2, "--workers", 1)
    first, second = ([a_graph(number) for number in numbers] for numbers in ((0, 1), (2, 3)))
    assert run(write(tmp_path / "one", first), out, *options) == 0
    assert run(write(tmp_path / "two", second), out, *options) == 0
    assert SectorFolder(out).events == [f"event{number:09}" for number in range(4)]
    assert [*report_of(out)["events"]] == SectorFolder(out).events
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = write(tmp_path / "three", [a_graph(1, n_edges=900), a_graph(5)], "b")
    assert run(other, out, *options) == 2
    said = capsys.readouterr().err
    assert "event000000001.safetensors: was made from another event" in said
    assert "--prefix" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
