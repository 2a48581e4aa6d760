"""Folders of graphs: built, resumed, and left whole by bad input."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from bigtrk.api import write_graphs
from bigtrk.disk.files import seal
from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.trackml import write_event
from bigtrk.graphs.builders import build_folder as build_module
from bigtrk.graphs.builders.build_folder import build_folder, show_folder
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.window_learning import learn_windows
from bigtrk.graphs.builders.windows import builtin_windows, read_windows
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    GraphFolder,
    SectionFile,
    file_of,
    write_sections,
)
from tests.distributed.graphs import random_graph
from tests.programs import Run

NAMES = ["event000000001", "event000000002", "event000000003"]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    for event_id in (1, 2, 3):
        write_event(simulate_event(60, seed=5, event_id=event_id), folder)
    return folder


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the events whose graphs are built, as they are built."""
    names: list[str] = []

    def spy(event: Any, builder: Any) -> Any:
        names.append(event.name)
        return build_with_record(event, builder)

    monkeypatch.setattr(build_module, "build_with_record", spy)
    return names


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def test_builds_and_shows_every_event(tmp_path: Path, events: Path) -> None:
    out, console = tmp_path / "graphs", Console(record=True, width=200)
    manifest = build_folder(events, out)
    folder = GraphFolder(out)
    assert folder.events == NAMES
    assert folder.manifest == manifest
    event = simulate_event(60, seed=5, event_id=2)
    expected, record = build_with_record(event, WindowBuilder(builtin_windows()))
    graph = folder.read(NAMES[1])
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert {name: folder.record(NAMES[1])[name] for name in record} == record
    assert read_windows(out / "windows.yaml") == builtin_windows()
    show_folder(manifest, console)
    text = console.export_text()
    for name, record in manifest["events"].items():
        (line,) = (line for line in text.splitlines() if name in line)
        assert f"{record['edges']:,}" in line
        assert f"{record['target_efficiency']:.2%}" in line


def test_a_wider_range_keeps_the_graphs_of_a_narrow_one(
    workdir: Path, events: Path, built: list[str], run_program: Run
) -> None:
    for numbers, names in (("2-2", NAMES[1:2]), ("0-2", NAMES[:2]), ("2-9", NAMES)):
        build = ["bigtrk", "build", str(events), "graphs", "--events", numbers]
        assert run_program(build)[0] == 0
        assert GraphFolder(workdir / "graphs").events == names
    assert built == [NAMES[1], NAMES[0], NAMES[2]]


def test_resumes_behind_a_bad_event(tmp_path: Path, events: Path, built: list[str]) -> None:
    out = tmp_path / "graphs"
    hits = events / f"{NAMES[1]}-hits.csv.gz"
    whole = hits.read_bytes()
    truncate(hits)
    with pytest.raises(InputError, match=NAMES[1]):
        build_folder(events, out)
    assert [path.name for path in out.iterdir()] == [f"{NAMES[0]}.safetensors"]
    hits.write_bytes(whole)
    build_folder(events, out)
    assert built == NAMES, "each event once"
    assert GraphFolder(out).events == NAMES


def misstate(path: Path) -> None:
    content = path.read_bytes()
    assert b'purity\\": 0.' in content
    path.write_bytes(content.replace(b'purity\\": 0.', b'purity\\": 1.'))


def misplace_edges(path: Path) -> None:
    """All checksums are right: nobody would read it, and it was kept for ever."""
    opened = SectionFile(path)
    sections = {name: opened.read(name) for name in opened.digests}
    sections["graph"]["edge_index"] += 10**6
    write_sections(path, sections, opened.record)


def test_only_what_changed_is_built_again(tmp_path: Path, events: Path, built: list[str]) -> None:
    out = tmp_path / "graphs"
    build_folder(events, out)
    for change in (truncate, misstate, Path.unlink, misplace_edges):
        built.clear()
        change(file_of(out, NAMES[1]))
        build_folder(events, out)
        assert built == [NAMES[1]]
        assert all(GraphFolder(out).read(name).n_edges for name in NAMES)


def test_a_graph_of_another_event_of_its_name_is_not_replaced(tmp_path: Path, events: Path) -> None:
    out, others = tmp_path / "graphs", tmp_path / "others"
    before = build_folder(events, out)["events"]
    write_event(simulate_event(61, seed=6, event_id=2), others)
    refused = r"graphs/event000000002.safetensors: was made from another event .* --prefix b-'"
    with pytest.raises(InputError, match=refused):
        build_folder(others, out)
    after = build_folder(others, out, prefix="b-")["events"]
    assert after.pop(f"b-{NAMES[1]}")["edges"] > 0
    assert after == before
    assert GraphFolder(out).read(f"b-{NAMES[1]}").name == f"b-{NAMES[1]}"


def test_learns_windows_and_does_not_list_graphs_of_other_options(
    tmp_path: Path, events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "graphs"
    build_folder(events, out)
    assert list(build_folder(events, out, learn=True, names=NAMES[:1])["events"]) == NAMES[:1]
    said = " ".join("".join(capsys.readouterr()).split())
    assert "2 graphs made with other options, such as event000000002, which manifest.json" in said
    assert "replacing graphs of other options or another version, such as event000000001" in said
    manifest = build_folder(events, out, learn=True)
    learned = read_windows(out / "windows.yaml")
    expected = learn_windows([simulate_event(60, seed=5, event_id=i) for i in (1, 2, 3)], "")
    assert learned.digest() == expected.digest() == manifest["parameters"]["windows"]
    assert NAMES[0] in learned.made


def test_foreign_output_folders_are_refused(tmp_path: Path, events: Path) -> None:
    out, before = tmp_path / "graphs", sorted(events.iterdir())
    with pytest.raises(InputError, match="--learn-windows exclude each other"):
        build_folder(events, out, windows=tmp_path / "w.yaml", learn=True)
    assert not out.exists()
    with pytest.raises(InputError, match=r"holds other files, such as .*; name another folder"):
        build_folder(events, events)
    with pytest.raises(InputError, match="holds other files"):
        write_graphs(events, [random_graph(0, 20, 60)])
    assert sorted(events.iterdir()) == before
    manifest = build_folder(events, out)
    (out / MANIFEST).write_bytes(seal({**manifest, "format": "bigtrk sectors"}))
    with pytest.raises(InputError, match="holds sectors; name another"):
        build_folder(events, out)
    with pytest.raises(InputError, match="is a file"):
        build_folder(events, out / MANIFEST)


def test_what_a_killed_build_left_is_kept(events: Path, tmp_path: Path) -> None:
    """Graphs, the windows and a temporary file, without a manifest."""
    out = tmp_path / "graphs"
    whole = build_folder(events, out)["events"]
    first = file_of(out, next(iter(whole))).stat().st_mtime_ns
    (out / MANIFEST).unlink()
    (out / ".event.safetensors.host.1.tmp").touch()
    assert build_folder(events, out)["events"] == whole
    assert file_of(out, next(iter(whole))).stat().st_mtime_ns == first
