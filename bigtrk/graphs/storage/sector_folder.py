"""A folder of cut events: one file per event, from which a rank reads its own sector.

Sections of a file: "sector/0" to "sector/K-1" and, where known, "particles" once. The record
holds what sectors have in common, their counts, and how they were made. Node and edge ids take
32 bits in the file, a third less to read; they are int64 in memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bigtrk.config import parse
from bigtrk.errors import InputError
from bigtrk.graphs.checks import LABELS
from bigtrk.graphs.event_graph import ParticleTable
from bigtrk.graphs.sector import Sector
from bigtrk.graphs.sector_merge import group, merge
from bigtrk.graphs.storage.entries import SectorsEntry
from bigtrk.graphs.storage.event_folder import EventFolder, particle_sections, read_particles
from bigtrk.graphs.storage.manifest import describe, file_of
from bigtrk.graphs.storage.sector_checks import check_content, check_sector
from bigtrk.graphs.storage.sector_sums import sector_sums
from bigtrk.graphs.storage.tensor_files import Section, SectionFile, write_sections

MOST_IDS = 2**31 - 1  # nodes or edges of an event
_IDS = ("edge_index", "node_id", "edge_id", "send_index")
_VALUES = ("node_features", "edge_features")


def write_sectors(folder: Path, sectors: list[Sector], record: dict[str, Any]) -> Path:
    """Writes all sectors of one event to its file in `folder`; returns the file's path.

    `record` is JSON-able and comes back from `SectorFolder.record` with these keys added: event,
    parts, nodes, edges, node_feature_names, edge_feature_names, labels, and sectors, a list of
    {owned, halo, edges, send_splits, recv_splits, sums}.
    """
    first = sectors[0]
    assert [sector.part for sector in sectors] == list(range(first.parts)), "all sectors, in order"
    sections = {f"sector/{sector.part}": _section(sector) for sector in sectors}
    path = file_of(folder, first.event)
    write_sections(
        path, sections | particle_sections(first.particles), {**record, **_describe(sectors)}
    )
    return path


def _describe(sectors: list[Sector]) -> dict[str, Any]:
    first = sectors[0]
    return {
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


def _section(sector: Sector) -> Section:
    assert max(sector.event_nodes, sector.event_edges) <= MOST_IDS, "ids are stored in 32 bits"
    columns = {name: getattr(sector, name) for name in (*_VALUES, *LABELS)}
    return {
        **{name: getattr(sector, name).to(torch.int32) for name in _IDS},
        **{name: column for name, column in columns.items() if column is not None},
    }


class SectorFolder(EventFolder):
    """The sectors of many events, read one sector at a time."""

    kind = "sectors"
    entry = SectorsEntry
    maker = "python -m partition GRAPHS {path}"

    def parts(self, event: str) -> int:
        """Returns the number of sectors that `event` is stored in."""
        return int(self.record(event)["parts"])

    def read(self, event: str, part: int, parts: int) -> Sector:
        """Reads one sector as `read_several` does."""
        return self.read_several(event, [part], parts)[0]

    def read_several(self, event: str, numbers: Sequence[int], parts: int) -> list[Sector]:
        """Reads sectors `numbers` of `event` cut into `parts`, each merged if more are stored.

        Only the stored sectors of these are read; with one part, all of them: the whole graph.

        Raises:
            InputError: the event is not stored in a multiple of `parts`, nor `parts` a smaller
                power of two; or the file is damaged, has changed since the manifest was written,
                or holds no such sectors.
        """
        stored = self.parts(event)
        assert all(0 <= part < parts for part in numbers), "parts are numbered from 0"
        if parts > stored or (stored % parts and parts & (parts - 1)):
            raise InputError(
                f"{file_of(self.path, event)}: holds {stored} sectors, which do not merge into "
                f"{parts}; cut the event again with 'python -m partition GRAPHS {self.path} "
                f"--parts {parts}'"
            )
        opened = self.open(event)
        particles = read_particles(opened)

        def made(part: int) -> Sector:
            sectors = [_sector(opened, old, particles) for old in group(part, parts, stored)]
            return sectors[0] if parts == stored else merge(sectors, part, parts)

        return [made(part) for part in numbers]


def check_sectors(opened: SectionFile) -> None:
    """Refuses a file that holds anything but all sectors of an event, which fit together.

    Raises:
        InputError: the file holds anything else, or sectors that do not fit.
    """
    parse(SectorsEntry, describe(opened), str(opened.path))
    particles = read_particles(opened)
    for part in range(opened.record["parts"]):
        _sector(opened, part, particles)


def _sector(opened: SectionFile, part: int, particles: ParticleTable | None) -> Sector:
    record = opened.record
    counts = record["sectors"][part]
    content, where = opened.read(f"sector/{part}"), f"{opened.path}, sector {part}"
    check_content(content, record, counts, where)
    ids = {name: content[name].to(torch.int64) for name in _IDS}
    sector = Sector(
        event=record["event"],
        part=part,
        parts=record["parts"],
        n_owned=counts["owned"],
        node_feature_names=tuple(record["node_feature_names"]),
        edge_feature_names=tuple(record["edge_feature_names"]),
        event_nodes=record["nodes"],
        event_edges=record["edges"],
        **ids,
        node_features=content["node_features"],
        edge_features=content["edge_features"],
        owns_edge=ids["edge_index"][1] < counts["owned"],
        send_splits=tuple(counts["send_splits"]),
        recv_splits=tuple(counts["recv_splits"]),
        y=content.get("y"),
        hit_id=content.get("hit_id"),
        particle_id=content.get("particle_id"),
        hit_weight=content.get("hit_weight"),
        modules=content.get("modules"),
        particles=particles,
    )
    check_sector(sector, counts["sums"], where)
    return sector
