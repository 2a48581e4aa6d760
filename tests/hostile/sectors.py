"""Sectors that do not fit together, in files whose checksums do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import Sector
from bigtrk.graphs.storage.event_folder import SectionFile, file_of, write_manifest, write_sections
from bigtrk.graphs.storage.sector_folder import write_sectors
from partition.sectors import cut
from tests.distributed.graphs import random_graph

PARTS = 3
GRAPH = random_graph(7, 60, 240)
EVENT = GRAPH.name
Sectors = list[Sector]


def good(parts: int = PARTS) -> Sectors:
    return cut(GRAPH, torch.arange(GRAPH.n_nodes) % parts, parts)


def store(folder: Path, sectors: Sectors) -> Path:
    """Stores `sectors` with a record that tells the truth about them."""
    path = write_sectors(folder, sectors, {"source_digests": {"graph": "0"}})
    write_manifest(folder, "sectors", {}, [EVENT])
    return path


def changed(sectors: Sectors, part: int, **fields: Any) -> Sectors:
    return [replace(s, **fields) if s.part == part else s for s in sectors]


def put(values: Tensor, places: Any, new: Any) -> Tensor:
    copy = values.clone()
    copy[places] = new
    return copy


def inside(sector: Sector) -> Tensor:
    """Rows of the edges among owned nodes."""
    return (sector.edge_index < sector.n_owned).all(dim=0).nonzero()[:, 0]


def sends_less(sectors: Sectors) -> Sectors:
    splits = list(sectors[0].send_splits)
    splits[1] -= 1
    return changed(sectors, 0, send_splits=tuple(splits), send_index=sectors[0].send_index[1:])


def sends_to_itself(sectors: Sectors) -> Sectors:
    """Lets sector 0 ask itself for a row and send it, which gloo would take."""
    s = sectors[0]
    assert s.send_splits[0] == s.recv_splits[0] == 0
    at = s.n_owned
    rows = torch.cat([torch.arange(at), torch.tensor([0]), torch.arange(at, s.n_nodes)])
    assert s.particle_id is not None
    return changed(
        sectors, 0, send_index=torch.cat([torch.tensor([0]), s.send_index]),
        send_splits=(1, *s.send_splits[1:]), recv_splits=(1, *s.recv_splits[1:]),
        node_id=s.node_id[rows], node_features=s.node_features[rows],
        particle_id=s.particle_id[rows], edge_index=s.edge_index + (s.edge_index >= at),
    )  # fmt: skip


def sends_another_row(sectors: Sectors) -> Sectors:
    """Sends a row that sector 1 did not ask for in place of its last, so that the order is kept."""
    s = sectors[0]
    asked = set(s.send_index[: s.send_splits[1]].tolist())
    other = next(row for row in range(s.n_owned) if row not in asked)
    rows = sorted([*asked - {max(asked)}, other])
    return changed(sectors, 0, send_index=put(s.send_index, slice(len(rows)), torch.tensor(rows)))


def repeats_an_edge(sectors: Sectors) -> Sectors:
    ids = sectors[1].edge_id
    a, b = inside(sectors[1])[:2]
    return changed(sectors, 1, edge_id=put(ids, a, ids[b]))


def swaps_two_for_others(sectors: Sectors) -> Sectors:
    """Swaps two edge ids for others of the same sum: 1 + 2 = 0 + 3."""
    ids = torch.cat([s.edge_id for s in sectors])
    swapped = {1: 0, 2: 3}
    assert all(edge in ids for edge in range(4))
    return [
        replace(s, edge_id=torch.tensor([swapped.get(i, i) for i in s.edge_id.tolist()]))
        for s in sectors
    ]


def owns_a_node_of_another(sectors: Sectors) -> Sectors:
    """Node 0 is sector 0's; sector 1's begin with 1, so the order is kept."""
    return changed(sectors, 1, node_id=put(sectors[1].node_id, 0, 0))


def lacks_the_copy_of_a_cut_edge(sectors: Sectors) -> Sectors:
    sector = sectors[1]
    kept = torch.ones(sector.n_edges, dtype=torch.bool)
    kept[(~sector.owns_edge).nonzero()[:1, 0]] = False
    assert sector.y is not None
    return changed(
        sectors, 1, edge_index=sector.edge_index[:, kept], y=sector.y[kept],
        edge_features=sector.edge_features[kept], edge_id=sector.edge_id[kept],
        owns_edge=sector.owns_edge[kept],
    )  # fmt: skip


def swapped(values: Tensor, a: int, b: int) -> Tensor:
    return put(values, [a, b], values[[b, a]])


def other_edge_id(s: Sector) -> dict[str, Tensor]:
    return {"edge_id": put(s.edge_id, 0, s.edge_id[1])}


def lie(folder: Path, part: int, columns: dict[str, Tensor]) -> None:
    """Put `columns` into a sector, and let digests and manifest say so, but not the record."""
    path = file_of(folder, EVENT)
    opened = SectionFile(path)
    sections = {name: opened.read(name) for name in opened.digests}
    sections[f"sector/{part}"] |= {name: x.to(torch.int32) for name, x in columns.items()}
    write_sections(path, sections, opened.record)
    write_manifest(folder, "sectors", {}, [EVENT])
