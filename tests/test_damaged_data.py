"""Folders of graphs and sectors: damage to any of their files is found and the file named."""

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from bigtrk.errors import InputError
from bigtrk.events.simulation.simulate import simulate_event
from bigtrk.graphs.builders.builder import WindowBuilder, build_with_record
from bigtrk.graphs.builders.windows import builtin_windows
from bigtrk.graphs.storage.event_folder import MANIFEST, file_of, write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.sector_folder import write_sectors
from bigtrk.training.data.event_source import EventSource, open_events
from partition.sectors import cut
from tests.hostile.reader import same

KINDS = ("graphs", "sectors")
# Their names differ by one bit. The first is damaged.
NUMBERS = (1, 3)
FILES = (MANIFEST, file_of(Path(), "event000000001").name)
PARTS = 4
BLOCK = 64  # bytes

Damaged = Iterator[bytes | None]  # contents of the damaged file, None where it is gone


@cache
def files_of(kind: str) -> dict[str, bytes]:
    """The files of a folder by name."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        events = [write_event_of(folder, kind, number) for number in NUMBERS]
        write_manifest(folder, kind, {"windows": "as shipped"}, events)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_event_of(folder: Path, kind: str, number: int) -> str:
    event, windows = simulate_event(4, seed=number, event_id=number), builtin_windows()
    graph, record = build_with_record(event, WindowBuilder(windows))
    if kind == "graphs":
        write_graph(folder, graph, {**record, "made_from": {"source": "a" * 64}})
    else:
        sectors = cut(graph, torch.arange(graph.n_nodes) % PARTS, PARTS)
        quality = {"cut_fraction": 0.7, "halo_fraction": 1.1e-5, "edge_imbalance": 1.25}
        made = {"source_digests": {"graph": "b" * 64}, "quality": quality}
        write_sectors(folder, sectors, {**record, **made})
    return graph.name


def read_all(folder: Path) -> object:
    """Reads all that training reads of a folder."""
    return [(event.folder.manifest, *read_event(event)) for event in open_events([folder])]


def read_event(event: EventSource) -> tuple[object, ...]:
    record = event.record
    event.check(record["node_feature_names"], record["edge_feature_names"], with_pt=True)
    parts = [event.read(part, event.parts) for part in range(event.parts)]
    return event.name, event.size, event.identity, event.origin, parts


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    for name, content in files_of(request.param).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def header_size(content: bytes) -> int:
    """Bytes of JSON, which is all of a manifest and the beginning of an event's file."""
    if content.startswith(b"{"):
        return len(content)
    return 8 + int.from_bytes(content[:8], "little")


def flipped_bits(content: bytes) -> Damaged:
    draw, header = random.Random(0), header_size(content)
    bits = draw.sample(range(8 * header), 300)
    if header < len(content):
        bits += draw.sample(range(8 * header, 8 * len(content)), 100)
    for bit in bits:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def zeroed_blocks(content: bytes) -> Damaged:
    for start in range(0, len(content), BLOCK):
        block = content[start : start + BLOCK]
        if any(block):
            yield content[:start] + bytes(len(block)) + content[start + BLOCK :]


def of_another_size(content: bytes) -> Damaged:
    header = header_size(content)
    sizes = {0, 1, 8, 9, header - 1, header, len(content) - 1}
    for size in sizes | set(random.Random(0).sample(range(1, len(content)), 50)):
        if size < len(content):
            yield content[:size]
    for more in (b"\n", b" ", b"\0", b"}", bytes(BLOCK), content):
        yield content + more
    yield None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flipped_bits, zeroed_blocks, of_another_size])
def test_damage_is_found_and_named(
    folder: Path, name: str, damage: Callable[[bytes], Damaged]
) -> None:
    path = folder / name
    good, whole = path.read_bytes(), read_all(folder)
    for content in damage(good):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        with pytest.raises(InputError, match=re.escape(name)):
            read_all(folder)
        path.write_bytes(good)
    assert same(read_all(folder), whole)
