"""Readers of files from elsewhere, for fuzzing and property tests: valid inputs, and one call each.

`read(folder, content)` lays `content` where the reader looks for it and returns what it read. A
first byte chooses how, where there are several ways.
"""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from bigtrk.config import load_settings
from bigtrk.disk.files import seal
from bigtrk.errors import InputError
from bigtrk.events.colliderml.writer import SampleWriter
from bigtrk.events.event import Event
from bigtrk.events.geometry import TRACKML_LAYERS
from bigtrk.events.reader import read_event
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.events.writer import write_event
from bigtrk.formats.acorn.graphs.import_graphs import read_acorn
from bigtrk.formats.acorn.models.checkpoint import AcornCheckpoint, write_checkpoint
from bigtrk.formats.acorn.models.hyper_parameters import of_model
from bigtrk.formats.acorn.models.import_model import read_model
from bigtrk.formats.acorn.models.weights import acorn_weights
from bigtrk.formats.heptrkx import read_heptrkx
from bigtrk.formats.pyg import read_pyg
from bigtrk.graphs.builders.builder import WindowBuilder, build_graph
from bigtrk.graphs.builders.module_map.learning import learn_module_map
from bigtrk.graphs.builders.module_map.map_file import read_module_map, write_module_map
from bigtrk.graphs.builders.windows import builtin_windows, read_windows
from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.storage.graph_folder import GraphFolder, write_graph
from bigtrk.graphs.storage.manifest import MANIFEST, file_of, read_manifest, write_manifest
from bigtrk.graphs.storage.sector_folder import SectorFolder, write_sectors
from bigtrk.graphs.storage.tensor_files import digest, metadata
from bigtrk.models.interaction_gnn import InteractionGNN
from bigtrk.models.settings import InteractionGNNConfig
from bigtrk.tracks.storage.files import open_tracks, write_tracks
from bigtrk.train import DEFAULT
from bigtrk.training.data.event_source import open_events
from bigtrk.training.settings import Configuration
from partition.sectors import cut
from tests.formats.acorn.events import columns
from tests.formats.acorn.events import write as write_acorn

EVENT = "event000000001"
TABLES = ("hits", "cells", "particles", "truth")
SAMPLE_TABLES = ("tracker_hits", "particles")
SAMPLE_FILE = "train-000000001-000000001.parquet"
PARTS = 4


@dataclass(frozen=True)
class Reader:
    """`seeds`: valid inputs. `read`: returns what was read, or raises InputError."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path, bytes], object]


@cache
def an_event() -> Event:
    return simulate_event(4, seed=1, event_id=1)


@cache
def a_graph() -> EventGraph:
    return build_graph(an_event(), WindowBuilder(builtin_windows()))


@cache
def tables() -> dict[str, bytes]:
    """The event's files by name."""
    with TemporaryDirectory() as folder:
        return {path.name: path.read_bytes() for path in write_event(an_event(), Path(folder))}


@cache
def plain_tables() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        paths = write_event(an_event(), Path(folder), compress=False)
        return {path.name: path.read_bytes() for path in paths}


def a_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in plain_tables().items():
            archive.writestr(name, content)
    return packed.getvalue()


def read_events(folder: Path, content: bytes) -> Event:
    """First byte: 0 to 3 and 4 to 7 spoil one table, plain and packed; others a zip archive."""
    kind, content = content[:1], content[1:]
    kinds = [*plain_tables(), *tables()]
    if not kind or kind[0] >= len(kinds):
        (folder / "events.zip").write_bytes(content)
        return read_event(folder / "events.zip")
    packed = kind[0] >= len(TABLES)
    events = folder / "events"
    events.mkdir(exist_ok=True)
    for path in events.iterdir():
        path.unlink()
    for name, good in (tables() if packed else plain_tables()).items():
        (events / name).write_bytes(good)
    (events / kinds[kind[0]]).write_bytes(content)
    return read_event(events)


@cache
def sample_seeds() -> list[bytes]:
    """A file of hits and one of particles, first byte 0 and 1."""
    with TemporaryDirectory() as folder:
        SampleWriter(Path(folder), TRACKML_LAYERS, lambda _: an_event()).write([1])
        files = (Path(folder) / table / SAMPLE_FILE for table in SAMPLE_TABLES)
        return [bytes([kind]) + path.read_bytes() for kind, path in enumerate(files)]


def read_sample(folder: Path, content: bytes) -> Event:
    """First byte: which of the two files is spoiled, the last for all others."""
    spoiled = min(content[0], len(SAMPLE_TABLES) - 1) if content else 0
    for kind, seed in enumerate(sample_seeds()):
        path = folder / "sample" / SAMPLE_TABLES[kind] / SAMPLE_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[1:] if kind == spoiled else seed[1:])
    return read_event(folder / "sample")


def event_seeds() -> list[bytes]:
    files = [*plain_tables().values(), *tables().values(), a_zip()]
    return [bytes([kind]) + content for kind, content in enumerate(files)]


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


def read_map(folder: Path, content: bytes) -> object:
    """First byte odd: the digests agree."""
    agrees, content = content[:1], content[1:]
    path = folder / "map.safetensors"
    path.write_bytes(with_true_digests(content) if agrees and agrees[0] % 2 else content)
    return read_module_map(path)


def header_of(content: bytes) -> tuple[dict[str, object], bytes]:
    """The header of a safetensors file and what follows it."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def with_true_digests(content: bytes) -> bytes:
    """The same file with digests that its tensors have, as an attacker would write it."""
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
    """A folder that holds `content` as its event; first byte odd: digests and manifest agree."""
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
    """The same manifest with the digest that it has, as an attacker would write it."""
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


def read_configuration(folder: Path, content: bytes) -> object:
    """First byte: 0 a configuration, 1 windows; others lines of overrides."""
    kind, content = content[:1], content[1:]
    if kind and kind[0] > 1:
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        return load_settings(Configuration, DEFAULT, lines)
    path = folder / "settings.yaml"
    path.write_bytes(content)
    return read_windows(path) if kind == b"\1" else load_settings(Configuration, path)


def configuration_seeds() -> list[bytes]:
    windows = b"made: x\npairs:\n- {inner: [8, 2], outer: [8, 4], edges: 3, phi_slope: 0.1, "
    windows += b"dphi: 0.2, z0: [-1.0, 1.0], deta: [-1, 1]}\n"
    aliased = b"model: &m {hidden: 8}\ntraining: {<<: {epochs: 2}, seed: 1:30}\n"
    overrides = b"\2model.hidden=16\ndata.train=[a, b]\nrun.folder=null\ntraining.seed=0x1f"
    return [b"\0" + DEFAULT.read_bytes(), b"\0" + aliased, b"\1" + windows, overrides]


def heptrkx_arrays() -> dict[str, Any]:
    return {
        "X": np.array([[0.03, 0.9, 0.1], [0.07, -0.9, 0.2], [1.0, -0.5, -1.0]], np.float32),
        "y": np.array([1, 0, 1], np.float32),
        "Ri_rows": np.array([2, 1, 2]),
        "Ri_cols": np.array([1, 0, 2]),
        "Ro_rows": np.array([0, 1, 0]),
        "Ro_cols": np.array([0, 1, 2]),
    }


def heptrkx_seeds() -> list[bytes]:
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **heptrkx_arrays())
    np.savez_compressed(packed, **heptrkx_arrays())
    columns = b"".join(_npy(array) for array in heptrkx_arrays().values())
    return [b"\0" + plain.getvalue(), b"\0" + packed.getvalue(), b"\1" + columns]


def _npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def read_npz(folder: Path, content: bytes) -> object:
    """First byte 1: the arrays' files one after another, zipped here, so that checksums agree."""
    path = folder / "graph.npz"
    if content[:1] == b"\1":
        magic = b"\x93NUMPY"
        pieces = [magic + piece for piece in content[1:].split(magic)[1:]]
        with zipfile.ZipFile(path, "w") as archive:
            for key, piece in zip(heptrkx_arrays(), pieces, strict=False):
                archive.writestr(f"{key}.npy", piece)
    else:
        path.write_bytes(content[1:])
    return read_heptrkx(path)


def pyg_seeds() -> list[bytes]:
    graph = a_graph().to_pyg()
    stream = io.BytesIO()
    torch.save(graph, stream)
    return [bytes([kind]) + stream.getvalue() for kind in range(2)]


def read_data(folder: Path, content: bytes) -> object:
    """First byte odd: the archive's checksums agree, as an attacker would write it."""
    path, agrees = folder / "graph.pt", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    return read_pyg(path)


@cache
def checkpoint_file() -> bytes:
    config = InteractionGNNConfig(hidden=2, layers=2)
    settings = of_model(config, ["dr", "dz"])
    model = InteractionGNN(config, len(settings.node_features), len(settings.edge_features))
    made = AcornCheckpoint(settings.content(), acorn_weights(model.state_dict(), config))
    with TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "a.ckpt", made)
        return (Path(folder) / "a.ckpt").read_bytes()


def read_acorn_model(folder: Path, content: bytes) -> object:
    """First byte as in `read_data`."""
    path, agrees = folder / "a.ckpt", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    stored = read_model(path)
    return [stored.model.state_dict(), stored.configuration, stored.measured]


def with_true_checksums(path: Path) -> None:
    """Writes a zip archive again, each member as it can be read."""
    content = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(content) as archive, zipfile.ZipFile(path, "w") as written:
            for member in archive.infolist():
                member.CRC, stream = None, archive.open(member)  # type: ignore[assignment]
                written.writestr(member.filename, stream.read())
    except Exception:  # no archive can be made of it
        path.write_bytes(content.getvalue())


@cache
def tracks_file() -> bytes:
    hit_id = np.arange(30)
    with TemporaryDirectory() as folder:
        return write_tracks(Path(folder), EVENT, hit_id, hit_id // 4).read_bytes()


@cache
def acorn_seeds() -> list[bytes]:
    found = []
    with TemporaryDirectory() as folder:
        for batch in (False, True):
            path = write_acorn(Path(folder) / "a.pyg", columns(), batch)
            found += [bytes([kind]) + path.read_bytes() for kind in range(2)]
    return found


def read_acorn_file(folder: Path, content: bytes) -> object:
    """First byte odd: the archive's checksums agree, as an attacker would write it."""
    path, agrees = folder / f"{EVENT}.pyg", content[:1]
    path.write_bytes(content[1:])
    if agrees and agrees[0] % 2:
        with_true_checksums(path)
    return read_acorn(path, EVENT)


def track_seeds() -> list[bytes]:
    return [b"\0" + tracks_file(), b"\1event_id,hit_id,track_id\n1,1,0\n1,2,0\n2,1,7\n"]


def read_track_file(folder: Path, content: bytes) -> object:
    """First byte: 0 a parquet file of an event, others a submission."""
    path = folder / (f"{EVENT}-tracks.parquet" if content[:1] == b"\0" else "submission.csv")
    path.write_bytes(content[1:])
    found = open_tracks(path)
    return [found.read(number) for number in found.events]


def same(one: object, other: object) -> bool:
    """Says whether two things that were read agree, values bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return digest({"x": one}) == digest({"x": other})
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


READERS = {
    "event": Reader(event_seeds, read_events),
    "sample": Reader(sample_seeds, read_sample),
    "graph": Reader(lambda: [b"\0" + graph_file(), b"\1" + graph_file()], read_graph),
    "sector": Reader(lambda: [b"\0" + sector_file(), b"\1" + sector_file()], read_sectors),
    "module map": Reader(lambda: [b"\0" + module_map_file(), b"\1" + module_map_file()], read_map),
    "manifest": Reader(manifest_seeds, read_stored),
    "configuration": Reader(configuration_seeds, read_configuration),
    "heptrkx": Reader(heptrkx_seeds, read_npz),
    "pyg": Reader(pyg_seeds, read_data),
    "acorn": Reader(acorn_seeds, read_acorn_file),
    "acorn model": Reader(
        lambda: [b"\0" + checkpoint_file(), b"\1" + checkpoint_file()], read_acorn_model
    ),
    "tracks": Reader(track_seeds, read_track_file),
}


def one_line(error: InputError, folder: Path) -> bool:
    return str(error).replace(str(folder), "").isprintable()


def refusal(read: Callable[[], object]) -> InputError:
    """Returns the error that `read` raises, or an empty one if it raises none."""
    try:
        read()
    except InputError as error:
        return error
    return InputError("")
