"""A folder of cut events: one file per event, from which a rank reads its own sector.

Sections of a file: "sector/0" to "sector/K-1" and, if known, "particles" once. The record holds the
sectors' common facts, their counts, and how they were made. Ids take 32 bits in the file, and are
int64 in memory.

A rank that reads one sector cannot see whether others expect what it sends, and whether each node
and edge has one owner. So the record holds sums over the ids of each sector, modulo 2^64. Reading a
sector compares it with its sums; opening the folder compares all sums.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigtrk.config import parse
from bigtrk.disk.hashing import mixed
from bigtrk.errors import InputError, shell_word
from bigtrk.graphs.event_graph import (
    LABELS,
    SECTOR,
    ParticleTable,
    Section,
    Sector,
    check_columns,
    check_rows,
    is_ordered,
    once,
)
from bigtrk.graphs.sector import group, merge
from bigtrk.graphs.storage.event_folder import (
    MODULUS,
    SUMS,
    EventFolder,
    SectionFile,
    SectorsEntry,
    describe,
    file_of,
    particle_sections,
    read_particles,
    write_sections,
)


def sector_sums(sector: Sector) -> dict[str, int]:
    """Computes a sector's checksums, by which all sectors of an event are checked together.

    own_edges: number of edges it owns. node_ids, node_squares, edge_ids, edge_squares: sums of ids
    of nodes and edges it owns, and of the ids' squares. halo: sum of hashes of rows sent, less that
    of rows received. cut: the same of cut edges it owns, less that of other cut edges.
    """
    foreign, edges = sector.edge_id[~sector.owns_edge], sector.edge_id
    owned = sector.node_id[: sector.n_owned]
    values = (
        len(edges) - len(foreign),
        int(owned.sum()),
        int(owned.dot(owned)),
        int(edges.sum() - foreign.sum()),
        int(edges.dot(edges) - foreign.dot(foreign)),
        _halo(sector),
        _cut(sector),
    )
    return {name: value % MODULUS for name, value in zip(SUMS, values, strict=True)}


def _halo(sector: Sector) -> int:
    receiver, owner = (
        torch.arange(sector.parts).repeat_interleave(torch.tensor(splits))
        for splits in (sector.send_splits, sector.recv_splits)
    )
    sent, received = sector.node_id[sector.send_index], sector.node_id[sector.n_owned :]
    of_sent = (sector.part * sector.parts + receiver) * sector.event_nodes + sent
    of_received = (owner * sector.parts + sector.part) * sector.event_nodes + received
    return int(mixed(of_sent).sum() - mixed(of_received).sum())


def _cut(sector: Sector) -> int:
    rows = (~((sector.edge_index[0] < sector.n_owned) & sector.owns_edge)).nonzero()[:, 0]
    source, destination = sector.node_id[sector.edge_index[:, rows]]
    hashes = mixed(mixed(sector.edge_id[rows]) ^ (source * sector.event_nodes + destination))
    own = sector.owns_edge[rows]
    return int(hashes[own].sum() - hashes[~own].sum())


_REMEDY = "the file is damaged: make it again"


def _check_content(
    content: Section, record: dict[str, Any], counts: dict[str, Any], where: str
) -> None:
    """Raises InputError if tensors do not match the record or `counts`, this sector's record."""
    nodes, n_sent = counts["owned"] + counts["halo"], sum(counts["send_splits"])
    node_names, edge_names = record["node_feature_names"], record["edge_feature_names"]
    features = {"F": len(node_names), "G": len(edge_names)}
    sizes = {"N": nodes, "E": counts["edges"], "S": n_sent, **features}
    check_columns(content, SECTOR, sizes, where)
    labels = [name for name in LABELS if name in content]
    if labels != record["labels"]:
        differ = ", ".join(sorted({*labels} ^ {*record["labels"]}))
        raise InputError(f"{where}: its arrays and its record disagree on {differ}; {_REMEDY}")
    bounds = nodes, record["nodes"], record["edges"], counts["owned"]
    for name, bound in zip(_IDS, bounds, strict=True):
        check_rows(content[name], bound, f"{where}: {name}")


def _check_ascending(ids: Tensor, splits: Sequence[int], where: str) -> None:
    """Raises InputError unless ids ascend within each block; splits: the blocks' lengths."""
    starts = torch.tensor(splits).cumsum(0)
    rises = ids[1:] > ids[:-1]
    rises[starts[(starts > 0) & (starts < len(ids))] - 1] = True
    for row in (~rises).nonzero()[:1, 0].tolist():
        raise InputError(f"{where} is out of order at row {row + 1}; {_REMEDY}")


def _check_sector(sector: Sector, sums: dict[str, int], where: str) -> None:
    """Raises InputError if a sector is out of order, or has other sums than recorded (`sums`)."""
    _check_ascending(sector.node_id, (sector.n_owned, *sector.recv_splits), f"{where}: node_id")
    _check_ascending(sector.send_index, sector.send_splits, f"{where}: send_index")
    owned = sector.edge_index < sector.n_owned
    inside = owned.all(dim=0)
    n_inside = int(inside.sum())
    for row in (~owned.any(dim=0)).nonzero()[:1, 0].tolist():
        raise InputError(f"{where}: edge {row} joins two nodes of other sectors; {_REMEDY}")
    # Owned rows ascend as their node ids do.
    cut = sector.node_id[sector.edge_index[:, n_inside:]]
    ordered = is_ordered(sector.edge_index[:, :n_inside]) and is_ordered(cut)
    if not (inside[:n_inside].all() and ordered):
        raise InputError(
            f"{where}: edges must be in this order: those between owned nodes, then cut edges, "
            f"each sorted by (destination, source); {_REMEDY}"
        )
    for name, value in sector_sums(sector).items():
        if value != sums.get(name):
            raise InputError(
                f"{where}: the checksum {name!r} differs from the stored one, so this sector does "
                f"not fit the others; {_REMEDY}"
            )


MOST_IDS = 2**31 - 1  # nodes or edges of an event
_IDS = ("edge_index", "node_id", "edge_id", "send_index")


def write_sectors(folder: Path, sectors: list[Sector], record: dict[str, Any]) -> Path:
    """Writes an event's sectors and JSON-able `record` to a file in `folder`; returns the path."""
    first = sectors[0]
    assert [sector.part for sector in sectors] == list(range(first.parts)), "all sectors, in order"
    assert max(first.event_nodes, first.event_edges) <= MOST_IDS, "ids are stored in 32 bits"
    sections = particle_sections(first.particles)
    for sector in sectors:
        columns = {name: getattr(sector, name) for name in SECTOR}
        sections[f"sector/{sector.part}"] = {
            name: column.to(torch.int32) if name in _IDS else column
            for name, column in columns.items()
            if column is not None
        }
    described = {
        "event": first.event,
        "parts": first.parts,
        "nodes": first.event_nodes,
        "edges": first.event_edges,
        "node_feature_names": list(first.node_feature_names),
        "edge_feature_names": list(first.edge_feature_names),
        "labels": [name for name in LABELS if getattr(first, name) is not None],
        "sectors": [
            {
                "owned": sector.n_owned,
                "halo": sector.n_nodes - sector.n_owned,
                "edges": sector.n_edges,
                "send_splits": list(sector.send_splits),
                "recv_splits": list(sector.recv_splits),
                "sums": sector_sums(sector),
            }
            for sector in sectors
        ],
    }
    path = file_of(folder, first.event)
    write_sections(path, sections, {**record, **described})
    return path


class SectorFolder(EventFolder):
    """A folder of many events' sectors, read one sector at a time."""

    kind = "sectors"
    entry = SectorsEntry
    maker = "python -m partition GRAPHS {path}"

    def parts(self, event: str) -> int:
        """Returns how many sectors are stored of `event`."""
        return int(self.record(event)["parts"])

    def read(self, event: str, part: int, parts: int) -> Sector:
        """Reads sector `part` of `parts`, as `read_several` does."""
        return self.read_several(event, [part], parts)[0]

    def read_several(self, event: str, numbers: Sequence[int], parts: int) -> list[Sector]:
        """Reads sectors `numbers` of `event` cut into `parts`; merges stored ones if more.

        Only the stored sectors of these are read; if `parts` is 1, all of them: the whole graph.
        `parts` divides the number of stored sectors, or is a smaller power of two.
        """
        stored = self.parts(event)
        assert all(0 <= part < parts for part in numbers), "parts are numbered from 0"
        if parts > stored or (stored % parts and parts & (parts - 1)):
            raise InputError(
                f"{file_of(self.path, event)}: holds {stored} sectors, which cannot be merged into "
                f"{parts}; cut the event again with 'python -m partition GRAPHS "
                f"{shell_word(self.path)} --parts {parts}'"
            )
        opened = self.open(event)
        particles, made = read_particles(opened), []
        for part in numbers:
            sectors = [_sector(opened, old, particles) for old in group(part, parts, stored)]
            sector = sectors[0] if parts == stored else merge(sectors, part, parts)
            made.append(sector.of_file(opened.known))
        return made


def check_sectors(opened: SectionFile) -> None:
    """Raises InputError unless a file holds all sectors of an event, and these fit together."""
    parse(SectorsEntry, describe(opened), str(opened.path))
    particles = read_particles(opened)
    for part in range(opened.record["parts"]):
        _sector(opened, part, particles)


def _sector(opened: SectionFile, part: int, particles: ParticleTable | None) -> Sector:
    record = opened.record
    counts = record["sectors"][part]
    content, where = opened.read(f"sector/{part}"), f"{opened.path}, sector {part}"
    once(opened.known, where, partial(_check_content, content, record, counts, where))
    columns: dict[str, Any] = {**content, **{name: content[name].long() for name in _IDS}}
    sector = Sector(
        event=record["event"],
        part=part,
        parts=record["parts"],
        n_owned=counts["owned"],
        node_feature_names=tuple(record["node_feature_names"]),
        edge_feature_names=tuple(record["edge_feature_names"]),
        event_nodes=record["nodes"],
        event_edges=record["edges"],
        owns_edge=columns["edge_index"][1] < counts["owned"],
        send_splits=tuple(counts["send_splits"]),
        recv_splits=tuple(counts["recv_splits"]),
        particles=particles,
        **columns,
    )
    checked = partial(_check_sector, sector, counts["sums"], where)
    once(opened.known, f"{where}: ids and order", checked)
    return sector
