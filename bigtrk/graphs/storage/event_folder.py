"""Reads and writes folders of graphs or sectors: a manifest, its entries, and a file per event.

A file holds tensors named `section/tensor`, a digest of each section, which is checked when it is
read, and one metadata record with a checksum, so any task can assemble the manifest again. Reading
a section touches only that section's bytes, so a rank reads its own part of an event. Files are
mapped into memory, not copied. bigtrk replaces files, so a mapped one keeps its old content. A
manifest ends in a digest of itself. Its entries are checked before an event's file is read.
"""

import hashlib
import json
import mmap
import os
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, FiniteFloat, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from bigtrk.config import Settings, parse
from bigtrk.disk.files import (
    by_numbers,
    check_file,
    parse_json,
    read_bytes,
    seal,
    unseal,
    write_atomically,
)
from bigtrk.errors import InputError, reason, shell_word
from bigtrk.graphs.event_graph import (
    GRAPH,
    PARTICLES,
    EventGraph,
    ParticleTable,
    Section,
    check_columns,
    check_particles,
    check_rows,
    once,
)
from bigtrk.machine import software

SIZE_BYTES = 8  # a file begins with the size of its header
_TICK = 2 * 10**9  # ns; the clocks of files tick coarsely, and a later change must show
METADATA = "__metadata__"  # the header's entry that is no tensor
TYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


def digest(section: Section) -> str:
    """Returns the SHA-256 over names, types, shapes and bytes of a section's tensors."""
    sha = hashlib.sha256()
    for name in sorted(section):
        tensor = section[name].contiguous()
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def write_sections(path: Path, sections: dict[str, Section], record: dict[str, Any]) -> None:
    """Writes `sections` (of numpy's dtypes) and the JSON-able `record` to `path`, atomically."""
    tensors = {
        f"{section}/{name}": tensor.contiguous()
        for section, content in sections.items()
        for name, tensor in content.items()
    }
    # safetensors refuses tensors that share memory, so these are copied.
    places = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    for name, tensor in tensors.items():
        if places[tensor.untyped_storage().data_ptr()] > 1:
            tensors[name] = tensor.clone()
    digests = {section: digest(content) for section, content in sections.items()}
    said = metadata(
        json.dumps(record, allow_nan=False, sort_keys=True), json.dumps(digests, sort_keys=True)
    )
    write_tensors(path, tensors, said)


def write_tensors(path: Path, tensors: Section, said: dict[str, str] | None = None) -> None:
    """Writes a safetensors file, atomically. said: its metadata. OSError if the disk refuses."""

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata=said)
        except SafetensorError as error:
            raise OSError(f"{path}: cannot be written ({reason(error)})") from None

    write_atomically(path, write)


def metadata(record: str, digests: str) -> dict[str, str]:
    """Returns a file's metadata, given its record and digests as JSON, with their checksum."""
    checksum = hashlib.sha256(f"{record}\n{digests}".encode()).hexdigest()
    return {"bigtrk": record, "digests": digests, "checksum": checksum}


class SectionFile:
    """An open file of sections. InputError if it is missing, cut, lengthened, of an older version
    or not bigtrk's, or if its record has changed since it was written.

    known: names of the checks that its content has passed, valid while `stamp` stays the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_file(path)
        try:
            # safe_open checks that the tensors follow each other up to the file's end. The file is
            # mapped here, since safetensors 0.8 leaks an object for each tensor that it makes.
            with safe_open(path, framework="np"), path.open("rb") as handle:
                size = int.from_bytes(handle.read(SIZE_BYTES), "little")
                self._header = parse_json(handle.read(size).decode())
                # Private: what is written to a tensor stays in this process.
                self._content = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
                status = os.fstat(handle.fileno())
            self.known: set[str] = set()
            self.stamp = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
            self._start = SIZE_BYTES + size
            found = self._header.pop(METADATA, {})
            if found != metadata(found["bigtrk"], found["digests"]):
                raise ValueError("its header does not match its checksum")
            self.record: dict[str, Any] = parse_json(found["bigtrk"])
            self.digests: dict[str, str] = parse_json(found["digests"])
            if not (isinstance(self.record, dict) and isinstance(self.digests, dict)):
                raise ValueError("its header is not a JSON object")
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InputError(
                f"{path}: is damaged, of an older version, or not a bigtrk file ({reason(error)}); "
                "make it again"
            ) from None

    def read(self, section: str) -> Section:
        """Maps a section's tensors from the file; InputError if it is missing or changed."""
        if section not in self.digests:
            raise InputError(f"{self.path}: lacks its section {section!r}; make the file again")
        prefix, content = section + "/", {}
        try:
            for name, entry in self._header.items():
                if name.startswith(prefix):
                    place = self._start + entry["data_offsets"][0]
                    array: NDArray[np.generic] = np.ndarray(
                        entry["shape"], TYPES[entry["dtype"]], self._content, place
                    )
                    content[name.removeprefix(prefix)] = torch.from_numpy(array)
            found = self.digests[section] if section in self.known else digest(content)
        except Exception as error:  # from a wrong dtype, shape or offset
            raise InputError(
                f"{self.path}: is damaged in its section {section!r} ({reason(error)}); make the "
                "file again"
            ) from None
        if found != self.digests[section]:
            raise InputError(f"{self.path}: is damaged in section {section!r}; make the file again")
        self.known.add(section)
        return content


MANIFEST = "manifest.json"
SUFFIX = ".safetensors"
WINDOWS = "windows.yaml"  # next to the graphs that were built with them
# A record's key for the event's digest, if the source in made_from is not the event.
ORIGIN = "origin"

Count = Annotated[int, Field(ge=0, lt=2**40)]
Id = Annotated[int, Field(ge=0, lt=2**31)]  # in sectors, where ids are stored in 32 bits
Share = Annotated[FiniteFloat, Field(ge=0)]
Digests = dict[str, str]

MODULUS = 2**64  # of sums over ids
_NODES, _EDGES = "own each of the event's nodes once", "own each of the event's edges once"
# Checksums of a sector (sector_folder.sector_sums): what sectors fail to do if they are wrong.
SUMS = {
    "own_edges": _EDGES,
    "node_ids": _NODES,
    "node_squares": _NODES,
    "edge_ids": _EDGES,
    "edge_squares": _EDGES,
    "halo": "send each other the nodes that they expect",
    "cut": "hold the same cut edges",
}


class _Entry(Settings):
    """Base of a manifest's entries; an entry may hold further keys, which are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class GraphEntry(_Entry):
    """The entry of an event in a folder of graphs."""

    event: str
    file: str
    bytes: Count
    digests: Digests
    nodes: Count
    edges: Count
    node_feature_names: list[str]
    edge_feature_names: list[str]
    source_digests: Digests = Field(default_factory=dict)
    made_from: dict[str, Any] = Field(default_factory=dict)
    purity: float | None = None


class CutQuality(_Entry):
    """The quality of a cut, as far as predictions use it."""

    cut_fraction: Share
    halo_fraction: Share
    edge_imbalance: Share


class SectorEntry(_Entry):
    """The counts of one sector; `send_splits` and `recv_splits` hold a number for each part."""

    owned: Id
    halo: Id
    edges: Id
    send_splits: list[Id]
    recv_splits: list[Id]
    sums: dict[str, Annotated[int, Field(ge=0, lt=MODULUS)]]


class SectorsEntry(GraphEntry):
    """The entry of an event in a folder of sectors."""

    nodes: Id
    edges: Id
    parts: Id = Field(ge=1)
    labels: list[str]
    sectors: list[SectorEntry]
    quality: CutQuality | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if len(self.sectors) != self.parts:
            raise ValueError(f"parts is {self.parts}, but there are {len(self.sectors)} sectors")
        for number, sector in enumerate(self.sectors):
            if not len(sector.send_splits) == len(sector.recv_splits) == self.parts:
                raise ValueError(
                    f"sector {number}: send_splits and recv_splits need {self.parts} numbers each"
                )
            if sum(sector.recv_splits) != sector.halo:
                raise ValueError(
                    f"recv_splits of sector {number} do not sum to its {sector.halo} halo nodes"
                )
        if sum(sector.owned for sector in self.sectors) != self.nodes:
            raise ValueError(f"the nodes of its sectors do not sum to its {self.nodes} nodes")
        # Merging allocates a row per node, so the number must be credible: each id takes bytes.
        if self.nodes > self.bytes:
            raise ValueError(f"{self.bytes} bytes cannot hold its {self.nodes} nodes")
        self._check_exchange()
        n, m = self.nodes, self.edges
        totals = (
            *(m, n * (n - 1) // 2, n * (n - 1) * (2 * n - 1) // 6),
            *(m * (m - 1) // 2, m * (m - 1) * (2 * m - 1) // 6, 0, 0),
        )
        for (name, failure), total in zip(SUMS.items(), totals, strict=True):
            found = sum(sector.sums.get(name, 0) for sector in self.sectors)
            if (found - total) % MODULUS:
                raise ValueError(f"sectors do not {failure} (checksum {name!r})")
        return self

    def _check_exchange(self) -> None:
        """Checks that sectors send what others expect; else gloo would end the processes."""
        sent = np.array([sector.send_splits for sector in self.sectors])
        received = np.array([sector.recv_splits for sector in self.sectors])
        for a, b in np.argwhere(sent != received.T).tolist():
            raise ValueError(
                f"sector {a} sends {sent[a, b]} rows to sector {b}, which expects {received[b, a]}"
            )
        for a in np.flatnonzero(sent.diagonal()).tolist():
            raise ValueError(f"sector {a} sends rows to itself")


def file_of(folder: Path, event: str) -> Path:
    """Returns the path of an event's file; InputError for a name that leads out of `folder`."""
    if not event or "/" in event or not event.isprintable():
        raise InputError(f"{folder}: {event!r} cannot name an event; use letters and digits")
    return folder / f"{event}{SUFFIX}"


def describe(opened: SectionFile) -> dict[str, Any]:
    """Returns a file's entry for the manifest: its record, name, size in bytes and digests."""
    path = opened.path
    facts = {"file": path.name, "bytes": path.stat().st_size, "digests": opened.digests}
    return {**opened.record, **facts}


def write_manifest(
    folder: Path, kind: str, parameters: dict[str, Any], events: Iterable[str]
) -> dict[str, Any]:
    """Writes the manifest of `events` from their files' records. kind: "graphs" or "sectors"."""
    ordered = sorted(events, key=by_numbers)
    manifest = {
        "format": f"bigtrk {kind}",
        "software": software(),
        "parameters": parameters,
        "events": {event: describe(SectionFile(file_of(folder, event))) for event in ordered},
    }
    content = seal(manifest)
    write_atomically(folder / MANIFEST, lambda temporary: temporary.write_bytes(content))
    return manifest


def read_manifest(folder: Path) -> tuple[str, dict[str, Any]]:
    """Reads a folder's manifest: its kind ("graphs" or "sectors") and its content."""
    path = folder / MANIFEST
    if folder.is_file():
        raise InputError(f"{folder}: is a file; name the folder of graphs or sectors")
    if not path.exists():
        if any(folder.glob("event*-hits.csv*")):
            raise InputError(
                f"{folder}: holds events, not graphs; make graphs with 'bigtrk build "
                f"{shell_word(folder)} GRAPHS' and name GRAPHS"
            )
        problem = f"holds no {MANIFEST}" if folder.is_dir() else "no such folder"
        raise InputError(
            f"{folder}: {problem}; make graphs with 'bigtrk build EVENTS {shell_word(folder)}' "
            f"or sectors with 'python -m partition GRAPHS {shell_word(folder)}'"
        )
    raw = read_bytes(path)
    try:
        manifest = unseal(raw)
    except ValueError as error:
        raise InputError(
            f"{path}: is damaged, of an older version, or not from bigtrk ({reason(error)}); if "
            f"bigtrk made this folder, delete the file and repeat the command that made the "
            f"folder: undamaged files stay"
        ) from None
    kind = str(manifest.get("format", ""))
    if kind not in ("bigtrk graphs", "bigtrk sectors"):
        raise InputError(f"{path}: lists neither graphs nor sectors; name a folder of either kind")
    events = manifest.get("events")
    if not isinstance(events, dict) or any(not isinstance(one, dict) for one in events.values()):
        raise InputError(f"{path}: lists no events; make the folder again")
    for event in events:
        file_of(folder, event)
    return kind.removeprefix("bigtrk "), manifest


class EventFolder:
    """A folder of events' files. events: names, ascending. manifest: content of manifest.json."""

    kind: ClassVar[str]  # in the manifest
    entry: ClassVar[type[GraphEntry]]
    maker: ClassVar[str]  # the command that fills such a folder, with {path} for it

    def __init__(self, path: Path) -> None:
        kind, self.manifest = read_manifest(path)
        if kind != self.kind:
            made = self.maker.format(path="OUT")
            raise InputError(f"{path}: holds {kind}; name a folder of {self.kind} made by '{made}'")
        self.path = path
        self._known: dict[tuple[int, ...], set[str]] = {}  # by the stamp of a file
        self.events = sorted(self.manifest["events"], key=by_numbers)
        remedy = f"remove {MANIFEST} and run '{self.maker.format(path=shell_word(path))}' again"
        for event, entry in self.manifest["events"].items():
            where = f"{path / MANIFEST}, event {event!r}"
            try:
                described = parse(self.entry, entry, where)
            except InputError as error:
                raise InputError(f"{error}; {remedy}") from None
            if described.event != event:
                raise InputError(f"{where}: its entry names event {described.event!r}; {remedy}")

    def record(self, event: str) -> dict[str, Any]:
        """Returns the manifest's entry of `event`; InputError if it has none."""
        found: dict[str, Any] | None = self.manifest["events"].get(event)
        if found is None:
            remedy = f"add it by '{self.maker.format(path=shell_word(self.path))}'"
            raise InputError(f"{self.path}: has no event {event!r}; name another, or {remedy}")
        return found

    def open(self, event: str) -> SectionFile:
        """Opens the file of `event`; InputError if it is missing or differs from the manifest.
        Content that this folder has checked is checked again only if the file has changed.
        """
        described = self.record(event)
        opened = SectionFile(file_of(self.path, event))
        if describe(opened) != described:
            raise InputError(
                f"{opened.path}: differs from its entry in {MANIFEST}; run "
                f"'{self.maker.format(path=shell_word(self.path))}' again with the same options"
            )
        if time.time_ns() - opened.stamp[2] > _TICK:
            opened.known = self._known.setdefault(opened.stamp, opened.known)
        return opened


def particle_sections(particles: ParticleTable | None) -> dict[str, Section]:
    """Returns the section "particles" of an event's file; {} if particles are unknown."""
    if particles is None:
        return {}
    return {"particles": {name: getattr(particles, name) for name in PARTICLES}}


def read_particles(opened: SectionFile) -> ParticleTable | None:
    """Reads an event's particles; None if its file has none."""
    if "particles" not in opened.digests:
        return None
    content, where = opened.read("particles"), f"{opened.path}, particles"
    once(opened.known, "particles listed once", partial(check_particles, content, where))
    return ParticleTable(**content)


class GraphFolder(EventFolder):
    """A folder of graphs, read one event at a time."""

    kind = "graphs"
    entry = GraphEntry
    maker = "bigtrk build EVENTS {path}"

    def read(self, event: str) -> EventGraph:
        """Reads the graph of `event`; InputError if the file has changed, or holds no graph."""
        return graph_of(self.open(event))


def graph_of(opened: SectionFile) -> EventGraph:
    """Reads a file's graph; InputError if its bytes have changed, or are no graph."""
    content, record, where = opened.read("graph"), opened.record, f"{opened.path}, graph"
    nodes, node_names = record["nodes"], tuple(record["node_feature_names"])
    edges, edge_names = record["edges"], tuple(record["edge_feature_names"])
    sizes = {"N": nodes, "E": edges, "F": len(node_names), "G": len(edge_names)}
    check_columns(content, GRAPH, sizes, where)
    checked = partial(check_rows, content["edge_index"], nodes, f"{where}: edge_index")
    once(opened.known, "edges end at nodes", checked)
    particles = read_particles(opened)
    return EventGraph(record["event"], node_names, edge_names, **content, particles=particles)
