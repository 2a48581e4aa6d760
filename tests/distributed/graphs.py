"""Graphs with everything that has tripped halo exchanges, and event sources made of them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.sector import Sector, whole_sector
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
    scale = torch.tensor([1000.0, 3.0, 1000.0, 3.0])
    return EventGraph(
        name=f"event{seed:09d}",
        node_feature_names=NODE_FEATURES,
        edge_feature_names=EDGE_FEATURES,
        node_features=torch.randn(n_nodes, 4, generator=generator) * scale,
        edge_index=edge_index,
        edge_features=torch.randn(n_edges, 6, generator=generator),
        y=torch.rand(n_edges, generator=generator) < 0.3,
    )


def random_parts(graph: EventGraph, parts: int, used: int) -> Tensor:
    """An owner for each node among the first `used` of `parts`: the others stay empty."""
    generator = torch.Generator().manual_seed(parts)
    assert used <= parts
    return torch.randint(used, (graph.n_nodes,), generator=generator)


@dataclass(frozen=True)
class MemorySource:
    """An event source that reads from memory."""

    name: str
    parts: int
    graph: EventGraph
    used: int

    @property
    def record(self) -> dict[str, Any]:
        return {"nodes": self.graph.n_nodes, "edges": self.graph.n_edges}

    def read(self, part: int, parts: int) -> Sector:
        if parts == 1:
            return whole_sector(self.graph)
        return cut(self.graph, random_parts(self.graph, parts, min(self.used, parts)), parts)[part]


def source(seed: int, parts: int, used: int | None = None, n_nodes: int = 40) -> Any:
    """A random event cut into `parts` sectors, of which only `used` own nodes."""
    graph = random_graph(seed, n_nodes, 6 * n_nodes)
    return MemorySource(graph.name, parts, graph, used or parts)
