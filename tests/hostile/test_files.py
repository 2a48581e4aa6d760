"""Files from elsewhere are read as they are meant, or refused in one line; nothing else happens."""

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigtrk.disk.files import read_json, seal, write_atomically, write_json
from bigtrk.errors import InputError
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    GraphFolder,
    SectionFile,
    file_of,
    read_manifest,
    write_manifest,
    write_sections,
)
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.sector_folder import SectorFolder, write_sectors
from partition.sectors import cut
from tests.hostile.reader import EVENT, one_line, refusal, same
from tests.hostile.readers import READERS
from tests.hostile.stored_files import a_graph

# Each example writes over the files of the one before.
HARMLESS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
HOSTILE_TEXT = [b"NaN", b"1e999", b"-1", b"9" * 30, b"null", "é\ud800".encode("utf-8", "replace")]
NUMBERS = [2**64 - 1, 2**63, 2**31, 0, 10**12]


@st.composite
def mutations(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with a byte flipped, its end cut off, a block zeroed, or something spliced in."""
    at = draw(st.integers(1, len(content) - 1))
    size = draw(st.integers(1, 64))
    text, number = draw(st.sampled_from(HOSTILE_TEXT)), draw(st.sampled_from(NUMBERS))
    block = content[draw(st.integers(1, len(content) - 1)) :][:size]
    return draw(
        st.sampled_from(
            [
                content[:at] + bytes([content[at] ^ (1 << size % 8)]) + content[at + 1 :],
                content[:at],
                content[:at] + bytes(size) + content[at + size :],
                content[:at] + text + content[at + len(text) :],
                content[:at] + struct.pack("<Q", number) + content[at + 8 :],
                content[:at] + block + content[at:],
                content[:at] + content[at + size :],
            ]
        )
    )


# Readers of files with checksums, whose plain seeds change in no byte unnoticed.
CHECKED = ("graph", "sector", "manifest", "heptrkx", "pyg", "acorn model", "acorn")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, suppress_health_check=HARMLESS)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    """A plain file with a checksum is read to the same content, or refused."""
    reader = READERS[name]
    seeds = reader.seeds()
    seed = data.draw(st.integers(0, len(seeds) - 1))
    content, found = data.draw(mutations(seeds[seed])), []
    told = refusal(lambda: found.append(reader.read(tmp_path, content)))
    assert one_line(told, tmp_path)
    if found and seed == 0 and name in CHECKED:
        assert same(found[0], reader.read(tmp_path, seeds[0]))


@pytest.mark.parametrize("name", READERS)
def test_the_seeds_are_valid(tmp_path: Path, name: str) -> None:
    for seed in READERS[name].seeds():
        READERS[name].read(tmp_path, seed)


@pytest.mark.parametrize("link", ["target", "temporary", "dangling"])
def test_links_out_of_a_folder_are_not_written_through(
    tmp_path: Path, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "data"
    folder.mkdir()
    path = folder / "a.json"
    if link != "dangling":
        outside.write_text("precious")
    monkeypatch.setattr("platform.node", lambda: "host")
    temporary = folder / f".a.json.host.{os.getpid()}.tmp"
    (temporary if link == "temporary" else path).symlink_to(outside)
    write_json(path, {"x": 1})
    assert read_json(path) == {"x": 1}
    assert not path.is_symlink()
    assert list(folder.iterdir()) == [path]
    assert outside.exists() == (link != "dangling")
    assert link == "dangling" or outside.read_text() == "precious"


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        write_atomically(tmp_path / "a", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "a/b", "", "a\0b", "a\nb", "/etc/x", "\ud800"])
def test_names_of_events_do_not_lead_elsewhere(tmp_path: Path, name: str) -> None:
    content = {"format": "bigtrk graphs", "events": {name: {}}}
    (tmp_path / MANIFEST).write_bytes(seal(content))
    half = name == "\ud800"  # of a character, which no text holds
    told = "surrogates not allowed" if half else "cannot name an event; use letters"
    with pytest.raises(InputError, match=told) as caught:
        read_manifest(tmp_path)
    assert one_line(caught.value, tmp_path)


def outside(index: torch.Tensor, value: int) -> torch.Tensor:
    changed = index.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[0] = value
    return changed


EDGES = a_graph().edge_index
LIES = [
    ("edge_index", outside(EDGES, -1), "edge_index has values -1"),
    ("edge_index", outside(EDGES, a_graph().n_nodes), "edge_index has values"),
    ("edge_index", EDGES.float(), "'edge_index' is torch.float32"),
    ("edge_index", EDGES[:, :-1], "'edge_index' has shape"),
    ("other", torch.zeros(1), "'other' is unknown; correct or remake the data"),
    ("node_features", None, "'node_features' is missing; correct or remake the data"),
]


def test_a_graph_that_is_none_is_refused_though_its_checksum_fits(tmp_path: Path) -> None:
    record = SectionFile(write_graph(tmp_path, a_graph(), {})).record
    names = ("node_features", "edge_features", "edge_index", "y", "hit_id", "hit_weight")
    for name, value, complaint in LIES:
        tensors = {**{known: getattr(a_graph(), known) for known in names}, name: value}
        held = {key: tensor for key, tensor in tensors.items() if tensor is not None}
        write_sections(file_of(tmp_path, EVENT), {"graph": held}, record)
        write_manifest(tmp_path, "graphs", {}, [EVENT])
        with pytest.raises(InputError, match=complaint):
            GraphFolder(tmp_path).read(EVENT)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"nodes": -1}, "nodes: Input should be greater than or equal to 0"),
        ({"nodes": "3"}, "nodes: Input should be a valid integer"),
        ({"nodes": 10**30}, "nodes: Input should be less than"),
        ({"parts": 10**9}, "parts is 1000000000, but there are 2 sectors"),
        ({"nodes": 2**31 - 1}, "nodes of its sectors do not sum"),
        ({"event": "../x"}, "its entry names event '../x'"),
        ({"quality": {"cut_fraction": "x"}}, "cut_fraction: Input should be a valid number"),
    ],
)
def test_a_record_that_lies_is_refused(tmp_path: Path, changes: object, complaint: str) -> None:
    graph = a_graph()
    sectors = cut(graph, torch.arange(graph.n_nodes) % 2, 2)
    write_sectors(tmp_path, sectors, {})
    manifest = write_manifest(tmp_path, "sectors", {}, [EVENT])
    assert isinstance(changes, dict)
    manifest["events"][EVENT] |= changes
    (tmp_path / MANIFEST).write_bytes(seal(manifest))
    with pytest.raises(InputError, match=complaint) as caught:
        SectorFolder(tmp_path)
    assert "run 'python -m partition GRAPHS" in str(caught.value)


def test_a_record_neither_differs_from_the_manifest_nor_speaks_for_its_file(tmp_path: Path) -> None:
    """Its size bounds what is allocated for it; the other file has the same tensors and size."""
    path = write_graph(tmp_path, a_graph(), {"bytes": 10**12, "digests": {}, "note": "one"})
    [entry] = write_manifest(tmp_path, "graphs", {}, [EVENT])["events"].values()
    assert entry["file"] == path.name
    assert entry["bytes"] == path.stat().st_size
    assert entry["digests"].keys() == {"graph", "particles"}
    write_graph(tmp_path, a_graph(), {"bytes": 10**12, "digests": {}, "note": "two"})
    with pytest.raises(InputError, match="differs from its entry in manifest"):
        GraphFolder(tmp_path).read(EVENT)


def test_sectors_that_know_different_labels_are_refused(tmp_path: Path) -> None:
    """Merging them ended in an IndexError, as fuzzing found. Each reader finds out alone."""
    graph = a_graph()
    first, second = cut(graph, torch.arange(graph.n_nodes) % 2, 2)
    write_sectors(tmp_path, [first, replace(second, hit_weight=None)], {})
    write_manifest(tmp_path, "sectors", {}, [EVENT])
    for part, parts in ((1, 2), (0, 1)):
        with pytest.raises(InputError, match="1: its arrays and its record disagree on hit_weight"):
            SectorFolder(tmp_path).read(EVENT, part, parts)


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "page.html")
    assert "is a device, pipe" in str(refusal(lambda: write_json(tmp_path / "page.html", {})))
    assert (tmp_path / "page.html").is_fifo()
