"""Files of graphs and sectors, manifests and module maps: valid ones, and a reader of each."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load, save

from bigtrk.disk.files import seal
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.module_map import read_module_map, write_module_map
from bigtrk.graphs.builders.module_map_builder import learn_module_map
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.event_folder import (
    MANIFEST,
    GraphFolder,
    digest,
    file_of,
    metadata,
    read_manifest,
    write_manifest,
)
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.sector_folder import SectorFolder, write_sectors
from bigtrk.training.data.event_source import open_events
from partition.sectors import cut
from tests.hostile.event_files import an_event
from tests.hostile.reader import EVENT, Reader, of_file

PARTS = 4


@cache
def a_graph() -> EventGraph:
    return build_graph(an_event(), WindowBuilder(builtin_windows()))


@cache
def graph_file() -> bytes:
    with TemporaryDirectory() as folder:
        return write_graph(Path(folder), a_graph(), {"made_from": {"source": "s"}}).read_bytes()


@cache
def sector_file() -> bytes:
    graph = a_graph()
    with TemporaryDirectory() as folder:
        sectors = cut(graph, torch.arange(graph.n_nodes) % PARTS, PARTS)
        return write_sectors(Path(folder), sectors, {"source_digests": {"graph": "0"}}).read_bytes()


@cache
def module_map_file() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "map"
        write_module_map(path, learn_module_map([an_event()], "made here", pt_min=0.0))
        return path.read_bytes()


def header_of(content: bytes) -> tuple[dict[str, object], bytes]:
    """Returns the header of a safetensors file and what follows it."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def with_true_digests(content: bytes) -> bytes:
    """Returns the same file with digests that its tensors have, as an attacker would write it."""
    try:
        said = header_of(content)[0]["__metadata__"]
        tensors = load(content)
        sections: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            section, _, column = name.rpartition("/")
            sections.setdefault(section, {})[column] = tensor
        digests = {name: digest(section) for name, section in sections.items()}
        assert isinstance(said, dict)
        return save(tensors, metadata(said["bigtrk"], json.dumps(digests)))
    except Exception:  # no such file can be made of it
        return content


def _store(folder: Path, kind: str, content: bytes) -> Path:
    """Makes a folder whose event is `content`; first byte odd: digests and manifest agree."""
    store = folder / kind
    store.mkdir(exist_ok=True)
    agrees, content = content[:1], content[1:]
    if agrees and agrees[0] % 2:
        content = with_true_digests(content)
        file_of(store, EVENT).write_bytes(content)
        write_manifest(store, kind, {}, [EVENT])
    else:
        good = graph_file() if kind == "graphs" else sector_file()
        file_of(store, EVENT).write_bytes(good)
        write_manifest(store, kind, {}, [EVENT])
        file_of(store, EVENT).write_bytes(content)
    return store


def read_graph(folder: Path, content: bytes) -> object:
    opened = GraphFolder(_store(folder, "graphs", content))
    return opened.read(EVENT)


def read_sectors(folder: Path, content: bytes) -> object:
    opened = SectorFolder(_store(folder, "sectors", content))
    return [opened.read(EVENT, 0, opened.parts(EVENT)), opened.read(EVENT, 0, 1)]


@cache
def manifest_of(kind: str) -> bytes:
    with TemporaryDirectory() as name:
        folder = Path(name)
        file_of(folder, EVENT).write_bytes(graph_file() if kind == "graphs" else sector_file())
        write_manifest(folder, kind, {"windows": "w"}, [EVENT])
        return (folder / MANIFEST).read_bytes()


def with_true_seal(content: bytes) -> bytes:
    """Returns the same manifest with the digest that it has, as an attacker would write it."""
    try:
        manifest = json.loads(content)
        manifest.pop("sha256", None)
        return seal(manifest)
    except Exception:  # no manifest can be made of it
        return content


def manifest_seeds() -> list[bytes]:
    kinds = {b"g": "graphs", b"s": "sectors", b"G": "graphs", b"S": "sectors"}
    return [first + manifest_of(kind) for first, kind in kinds.items()]


def read_stored(folder: Path, content: bytes) -> object:
    """Plan with a manifest and read all that it names. First byte a capital: its digest agrees."""
    first, content = content[:1], content[1:]
    if first.isupper():
        content = with_true_seal(content)
    kind = "sectors" if first in (b"s", b"S") else "graphs"
    store = folder / kind
    store.mkdir(exist_ok=True)
    file_of(store, EVENT).write_bytes(graph_file() if kind == "graphs" else sector_file())
    (store / MANIFEST).write_bytes(content)
    read_manifest(store)
    return [
        (event.name, event.size, event.identity, event.origin, event.read(0, 1))
        for event in open_events([store])
    ]


STORED_READERS = {
    "graph": Reader(lambda: [b"\0" + graph_file(), b"\1" + graph_file()], read_graph),
    "sector": Reader(lambda: [b"\0" + sector_file(), b"\1" + sector_file()], read_sectors),
    "module map": of_file(
        lambda: [module_map_file()], "map.safetensors", read_module_map, with_true_digests
    ),
    "manifest": Reader(manifest_seeds, read_stored),
}
