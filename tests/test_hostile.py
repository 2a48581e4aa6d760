"""Files from elsewhere are read as they are meant, or refused in one line; nothing else happens."""

import gzip
import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigtrk import unpacking
from bigtrk.config import load_settings, read_yaml
from bigtrk.errors import InputError
from bigtrk.events.reader import read_event
from bigtrk.files import read_json, write_atomically, write_json
from bigtrk.graphs.graph_folder import GraphFolder, write_graph
from bigtrk.graphs.heptrkx import read_heptrkx
from bigtrk.graphs.manifest import MANIFEST, file_of, read_manifest, write_manifest
from bigtrk.graphs.sector_folder import SectorFolder, write_sectors
from bigtrk.graphs.tensor_files import SectionFile, write_sections
from bigtrk.safe_yaml import parse_yaml
from bigtrk.train import DEFAULT
from bigtrk.training.settings import Configuration
from partition.sectors import cut
from tests.hostile import EVENT, READERS, a_graph, a_zip, heptrkx_arrays, plain_tables, same

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


def one_line(error: InputError, folder: Path) -> bool:
    return str(error).replace(str(folder), "").isprintable()


def refusal(read: Callable[[], object]) -> InputError:
    """What `read` raises, an empty one if it does not."""
    try:
        read()
    except InputError as error:
        return error
    return InputError("")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, suppress_health_check=HARMLESS)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused(tmp_path: Path, name: str, data: st.DataObject) -> None:
    reader = READERS[name]
    content = data.draw(st.sampled_from(reader.seeds()).flatmap(mutations))
    assert one_line(refusal(lambda: reader.read(tmp_path, content)), tmp_path)


@pytest.mark.parametrize(("name", "seed"), [("graph", 0), ("sector", 0), ("heptrkx", 0)])
@settings(max_examples=60, suppress_health_check=HARMLESS)
@given(data=st.data())
def test_a_checked_file_is_read_to_the_same_content_or_refused(
    tmp_path: Path, name: str, seed: int, data: st.DataObject
) -> None:
    reader = READERS[name]
    good = reader.seeds()[seed]
    try:
        found = reader.read(tmp_path, data.draw(mutations(good)))
    except InputError:
        return
    assert same(found, reader.read(tmp_path, good))


@pytest.mark.parametrize("name", READERS)
def test_the_seeds_are_valid(tmp_path: Path, name: str) -> None:
    for seed in READERS[name].seeds():
        READERS[name].read(tmp_path, seed)


def bomb(path: Path, member: str, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, b"\0" * size)
    return path


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", 10_000)


@pytest.mark.usefixtures("small_limits")
def test_archive_bombs_are_refused(tmp_path: Path) -> None:
    hits = f"{EVENT}-hits.csv"
    with pytest.raises(InputError, match=r"hits\.csv: unpacks to more than .* unpack it yourself"):
        read_event(bomb(tmp_path / "a.zip", hits, 10_000_000))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / f"{hits}.gz").write_bytes(gzip.compress(bytes(10_000_000)))
    with pytest.raises(InputError, match=r"hits\.csv\.gz: unpacks to more than"):
        read_event(tmp_path / "b")
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{hits}.gz", gzip.compress(bytes(9_000_000)))
    with pytest.raises(InputError, match=r"hits\.csv\.gz: unpacks to more than"):
        read_event(tmp_path / "c.zip")
    np.savez_compressed(tmp_path / "d.npz", **{**heptrkx_arrays(), "X": np.zeros((10**6, 3))})
    with pytest.raises(InputError, match=r"X\.npy: unpacks to more than"):
        read_heptrkx(tmp_path / "d.npz")


def test_no_ratio_allows_more_than_the_absolute_limit() -> None:
    assert unpacking.limit_of(1) == unpacking.FREE_BYTES
    assert unpacking.limit_of(2**20) == unpacking.MAX_RATIO * 2**20
    assert unpacking.limit_of(2**40) == unpacking.MAX_BYTES


@pytest.mark.usefixtures("small_limits")
def test_a_bomb_that_lies_of_its_size_is_refused(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.zip", f"{EVENT}-hits.csv", 10_000_000)
    size = struct.pack("<L", 10_000_000)
    path.write_bytes(path.read_bytes().replace(size, struct.pack("<L", 100)))
    with pytest.raises(InputError, match="damaged zip archive"):
        read_event(path)


def test_gzip_members_count_together(tmp_path: Path) -> None:
    """A table of several streams is read whole; its last stream's size is not that of the whole."""
    table = plain_tables()[f"{EVENT}-hits.csv"]
    packed = gzip.compress(table[:500]) + gzip.compress(table[500:])
    (tmp_path / f"{EVENT}-hits.csv.gz").write_bytes(packed)
    found = read_event(tmp_path).hits
    (tmp_path / f"{EVENT}-hits.csv.gz").write_bytes(gzip.compress(table))
    assert same(found, read_event(tmp_path).hits)


def test_links_and_rare_methods_in_archives_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo(f"{EVENT}-hits.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for path in (tmp_path / "a.zip", tmp_path / "a.npz"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(link, "/etc/passwd")
    with pytest.raises(InputError, match="symbolic link"):
        read_event(tmp_path / "a.zip")
    with pytest.raises(InputError, match="symbolic link"):
        read_heptrkx(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(f"{EVENT}-hits.csv", b"\0" * 1000)
    with pytest.raises(InputError, match="not packed by deflate"):
        read_event(tmp_path / "b.zip")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    content = bytearray(a_zip())
    for magic, place in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        content[content.index(magic) + place] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"damaged zip archive.*encrypted"):
        read_event(tmp_path / "a.zip")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / f"{EVENT}-hits.csv"
    os.mkfifo(pipe)
    for read in (read_event, read_json, read_yaml, read_heptrkx, SectionFile):
        with pytest.raises(InputError, match="is not a file"):
            read(tmp_path if read is read_event else pipe)


@pytest.mark.parametrize("descr", ["'O'", "'|V8'", "'<U4'", "[('a', '<f4')]"])
@pytest.mark.parametrize("shape", ["(3, 3)", "(10**15, 3)", "(-1, 3)", "(2**62, 2**62)", "3"])
def test_npy_headers_that_lie(tmp_path: Path, descr: str, shape: str) -> None:
    refuse_npy(tmp_path, f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 3), }",
        "__import__('os')",
        "(" * 5000,
        "'",
    ],
)
def test_more_npy_headers_that_lie(tmp_path: Path, header: str) -> None:
    refuse_npy(tmp_path, header)


def refuse_npy(folder: Path, header: str) -> None:
    content = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + bytes(36)
    path = folder / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in heptrkx_arrays().items():
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{key}.npy", content if key == "X" else stream.getvalue())
    with pytest.raises(InputError, match=r"a\.npz: array 'X' (cannot be read|holds)"):
        read_heptrkx(path)


def test_pickles_and_distant_hits_in_npz_are_refused(tmp_path: Path) -> None:
    objects: Any = np.array([[print, print, print]], dtype=object)
    np.savez(tmp_path / "a.npz", **{**heptrkx_arrays(), "X": objects})
    with pytest.raises(InputError, match="'X' cannot be read"):
        read_heptrkx(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **{**heptrkx_arrays(), "X": heptrkx_arrays()["X"] * 1e30})
    with pytest.raises(InputError, match="'X' holds coordinates beyond"):
        read_heptrkx(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("[" * 5000, "nests too deep"),
        ("a: &a [*a]", "holds itself"),
        ("1" + ":59" * 200_000, "digits"),
        ("!!timestamp x", "not YAML"),
        ("!!bool x", "not YAML"),
        ("2001-99-99", "not YAML"),
        ("x" * (1 << 20) + "x", "larger than 1 MiB"),
        ("a: \ud800".encode("utf-8", "surrogatepass"), "not YAML"),
    ],
)
def test_yaml_bombs_are_refused(tmp_path: Path, text: str | bytes, complaint: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=complaint) as caught:
        read_yaml(path)
    assert one_line(caught.value, tmp_path)


@pytest.mark.parametrize("join", ["[{}]", "{{<<: [{}]}}"])
def test_a_billion_laughs_are_refused(tmp_path: Path, join: str) -> None:
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {join.format(aliases)}")
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError, match="values, aliases written out"):
        load_settings(Configuration, tmp_path / "a.yaml")


def test_aliases_and_merges_are_read() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: *a}") == {
        "a": {"x": 1},
        "b": {"x": 1, "y": {"x": 1}},
    }


KEYS = st.sampled_from(["model", "hidden", "data.train", "training", "run", "engine", "", ".", "1"])
VALUES = st.sampled_from(["[[]]", "{}", "null", "NaN", "-.inf", "~", "{1: 2}", "!!set {a}", "'\\"])


@settings(max_examples=200)
@given(st.lists(st.tuples(st.lists(KEYS, max_size=4), VALUES | st.text()), max_size=3))
def test_overrides_of_all_shapes(overrides: list[tuple[list[str], str]]) -> None:
    lines = [f"{'.'.join(keys)}={value}" for keys, value in overrides]
    assert str(refusal(lambda: load_settings(Configuration, DEFAULT, lines))).isprintable()


def test_many_mistakes_are_told_in_short(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("".join(f"key{number}: {'x' * 100}\n" for number in range(5000)))
    with pytest.raises(InputError) as caught:
        load_settings(Configuration, path)
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("text", ["[" * 200_000, "1" * 5000, "NaN", '{"a": Infinity}', "\xff"])
def test_json_that_breaks_readers(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="not a JSON file"):
        read_json(tmp_path / "a.json")


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


def test_a_graph_is_not_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "graphs").mkdir()
    file_of(tmp_path / "graphs", EVENT).symlink_to(outside)
    write_graph(tmp_path / "graphs", a_graph(), {})
    write_manifest(tmp_path / "graphs", "graphs", {}, [EVENT])
    assert outside.read_text() == "precious"
    assert same(GraphFolder(tmp_path / "graphs").read(EVENT), a_graph())


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
    write_json(tmp_path / MANIFEST, content)
    with pytest.raises(InputError, match="is no name of an event") as caught:
        read_manifest(tmp_path)
    assert one_line(caught.value, tmp_path)


def graph_tensors() -> dict[str, torch.Tensor]:
    names = ("node_features", "edge_features", "edge_index", "y", "hit_id", "hit_weight")
    return {name: getattr(a_graph(), name) for name in names}


def outside(index: torch.Tensor, value: int) -> torch.Tensor:
    changed = index.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[0] = value
    return changed


EDGES = a_graph().edge_index
LIES = [
    ("edge_index", outside(EDGES, -1), "edge_index runs from -1"),
    ("edge_index", outside(EDGES, a_graph().n_nodes), "edge_index runs from"),
    ("edge_index", EDGES.float(), "edge_index is torch.float32"),
    ("edge_index", EDGES[:, :-1], "edge_index has shape"),
    ("edge_index", EDGES[0], "edge_index is torch.int64"),
    ("node_features", a_graph().node_features[:, :-1], "node_features has shape"),
    ("hit_id", torch.zeros(1, dtype=torch.int64), "hit_id has shape"),
    ("other", torch.zeros(1), "'other' is missing or unknown"),
    ("node_features", None, "'node_features' is missing or unknown"),
]


@pytest.mark.parametrize(("name", "value", "complaint"), LIES)
def test_a_graph_that_is_none_is_refused_though_its_checksum_fits(
    tmp_path: Path, name: str, value: torch.Tensor | None, complaint: str
) -> None:
    record = SectionFile(write_graph(tmp_path, a_graph(), {})).record
    changed = {**graph_tensors(), name: value}
    tensors = {key: tensor for key, tensor in changed.items() if tensor is not None}
    write_sections(file_of(tmp_path, EVENT), {"graph": tensors}, record)
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
        ({"sectors": []}, "parts is 2, but there are 0 sectors"),
        ({"nodes": 2**31 - 1}, "do not own the event's"),
        ({"event": "../x"}, "describes '../x'"),
        ({"node_feature_names": 3}, "node_feature_names: Input should be a valid list"),
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
    write_json(tmp_path / MANIFEST, manifest)
    with pytest.raises(InputError, match=complaint) as caught:
        SectorFolder(tmp_path)
    assert "finish 'python -m partition GRAPHS" in str(caught.value)


def test_a_record_that_the_manifest_does_not_tell_is_refused(tmp_path: Path) -> None:
    """Digests are of tensors alone; the record beside them is compared with the manifest."""
    path = write_graph(tmp_path, a_graph(), {"note": "one"})
    write_manifest(tmp_path, "graphs", {}, [EVENT])
    path.write_bytes(path.read_bytes().replace(b"one", b"two"))
    with pytest.raises(InputError, match="not the file that the manifest describes"):
        GraphFolder(tmp_path).read(EVENT)
