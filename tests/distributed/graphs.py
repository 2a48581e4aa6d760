"""Graphs with everything that has tripped halo exchanges, and event sources made of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, ParticleTable, Sector, whole_sector
from bigtrk.graphs.storage.event_folder import read_manifest, write_manifest
from bigtrk.graphs.storage.graph_folder import write_graph
from bigtrk.graphs.storage.sector_folder import write_sectors
from partition.sectors import cut

NODE_FEATURES = ("r", "phi", "z", "eta")
EDGE_FEATURES = ("dr", "dphi", "dz", "deta", "phislope", "rphislope")


def random_graph(seed: int, n_nodes: int, n_edges: int) -> EventGraph:
    """Directed edges with self loops, repeats and isolated nodes (the last tenth)."""
    generator = torch.Generator().manual_seed(seed)
    connected = max(1, n_nodes * 9 // 10)
    edge_index = torch.randint(connected, (2, n_edges), generator=generator)
    edge_index[:, : n_edges // 10] = edge_index[:, n_edges // 10 : n_edges // 10 * 2]
    edge_index[1, -3:] = edge_index[0, -3:]
    return _graph(f"event{seed:09d}", n_nodes, edge_index, generator)


def _graph(name: str, n_nodes: int, edge_index: Tensor, generator: torch.Generator) -> EventGraph:
    scale = torch.tensor([1000.0, 3.0, 1000.0, 3.0])
    n_edges = edge_index.shape[1]
    graph = EventGraph(
        name=name,
        node_feature_names=NODE_FEATURES,
        edge_feature_names=EDGE_FEATURES,
        node_features=torch.randn(n_nodes, 4, generator=generator) * scale,
        edge_index=edge_index,
        edge_features=torch.randn(n_edges, 6, generator=generator),
        y=torch.rand(n_edges, generator=generator) < 0.3,
    )
    return _with_particles(graph, generator)


def _with_particles(graph: EventGraph, generator: torch.Generator) -> EventGraph:
    """Adds a particle for each node: some are not in the table, some have an unknown pT."""
    n = max(2, graph.n_nodes // 4)
    pt = torch.randn(n, generator=generator).exp()
    pt[0], unknown = torch.nan, torch.full((n,), torch.nan)
    particles = ParticleTable(
        particle_id=torch.randperm(n, generator=generator) + 2**60,
        pt=pt,
        eta=unknown,
        vertex=torch.zeros(n, 3),
        nhits=torch.full((n,), 4),
    )
    particle = torch.randint(n + n // 3, (graph.n_nodes,), generator=generator)
    return replace(graph, particle_id=particle + 2**60, particles=particles)


def random_parts(graph: EventGraph, parts: int, used: int) -> Tensor:
    """An owner for each node among the first `used` of `parts`: the others stay empty."""
    generator = torch.Generator().manual_seed(parts)
    assert used <= parts
    return torch.randint(used, (graph.n_nodes,), generator=generator)


def write_graphs(folder: Path, graphs: Sequence[EventGraph], **record: Any) -> None:
    """Writes a folder of graphs. record: what else each one's record says."""
    for graph in graphs:
        sizes = {"nodes": graph.n_nodes, "edges": graph.n_edges}
        write_graph(folder, graph, {**sizes, **record})
    write_manifest(folder, "graphs", {}, [graph.name for graph in graphs])


def write_cut(folder: Path, graphs: Sequence[EventGraph], parts: int) -> None:
    """Writes graphs of the folder `graphs` in `parts` sectors each, in `sectors`."""
    whole = read_manifest(folder / "graphs")[1]["events"]
    for graph in graphs:
        record = {
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "source_digests": whole[graph.name]["digests"],
        }
        sectors = cut(graph, random_parts(graph, parts, parts), parts)
        write_sectors(folder / "sectors", sectors, record)
    write_manifest(folder / "sectors", "sectors", {}, [graph.name for graph in graphs])


@dataclass(frozen=True)
class MemorySource:
    """An event source that reads from memory; `owner` [N] names each node's part of `parts`."""

    name: str
    parts: int
    graph: EventGraph
    owner: Tensor

    @property
    def record(self) -> dict[str, Any]:
        return {"nodes": self.graph.n_nodes, "edges": self.graph.n_edges}

    def read(self, part: int, parts: int) -> Sector:
        if parts == 1:
            return whole_sector(self.graph)
        return cut(self.graph, self.owner * parts // self.parts, parts)[part]

    def read_several(self, numbers: Sequence[int], parts: int) -> list[Sector]:
        return [self.read(part, parts) for part in numbers]


def source(seed: int, parts: int, used: int | None = None, n_nodes: int = 40) -> Any:
    """A random event cut into `parts` sectors, of which only `used` own nodes."""
    graph = random_graph(seed, n_nodes, 6 * n_nodes)
    return MemorySource(graph.name, parts, graph, random_parts(graph, parts, used or parts))


def sources() -> list[Any]:
    """Five events, cut in 1, 2 and 3, some of whose sectors are empty."""
    cuts = [(1, 3, 3), (2, 1, 1), (3, 2, 2), (4, 3, 1), (5, 2, 1)]  # seed, parts, parts in use
    return [source(*event) for event in cuts]


def of_kind(kind: str, seed: int, parts: int) -> tuple[EventGraph, Tensor]:
    """A random graph that has what `kind` names, or lacks it, and an owner for each node [N].

    Kinds: directed, symmetric, isolated nodes, self loops, repeated edges, empty sector (the last
    part owns no node), no cut edges.
    """
    generator = torch.Generator().manual_seed(1000 * parts + seed)
    n_nodes, n_edges = 24 + 4 * seed, 90 + 10 * seed
    owner = torch.randint(parts, (n_nodes,), generator=generator)
    if kind == "empty sector" and parts > 1:
        owner = torch.randint(parts - 1, (n_nodes,), generator=generator)
    connected = n_nodes * 2 // 3 if kind == "isolated nodes" else n_nodes
    ends = torch.randint(connected, (2, 4 * n_edges), generator=generator)
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    if kind == "no cut edges":
        ends = ends[:, owner[ends[0]] == owner[ends[1]]]
    ends = ends[:, torch.randperm(ends.shape[1], generator=generator)[:n_edges]]
    if kind == "symmetric":
        ends = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1)
    if kind == "self loops":
        ends = torch.cat([ends, torch.arange(n_nodes).expand(2, -1)[:, ::2]], dim=1)
    if kind == "repeated edges":
        ends = torch.cat([ends, ends[:, ::3], ends[:, ::3]], dim=1)
    return _graph(f"event{seed:09d}", n_nodes, ends, generator), owner
