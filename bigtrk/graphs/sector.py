"""A sector: a rank's part of an event graph, with the halo it needs from other sectors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, ParticleTable

AT_A_TIME = 1 << 20  # edges compared or computed at a time: some 10 MB


@dataclass(frozen=True, eq=False)
class Sector:
    """Part `part` of an event cut into `parts`; a whole graph is part 0 of 1.

    Nodes: the `n_owned` owned ones first, ascending by node id, then the halo, ascending by
    (owner, node id). Edges: those among owned nodes first, then cut edges, each block sorted by
    (destination, source) in the event's node ids. A cut edge lies in both sectors it touches.

    node_id [N], edge_id [E] int64: positions in the event.
    owns_edge [E] bool: true in exactly one sector per edge, the one that owns its destination.
    send_index [S] int64: owned rows the other sectors asked for, grouped by receiver;
    `send_splits` counts those for each part, and `recv_splits` this sector's halo rows by owner.
    Other fields are those of EventGraph, restricted to this sector; edge_index holds local rows.
    """

    event: str
    part: int
    parts: int
    n_owned: int
    node_feature_names: tuple[str, ...]
    edge_feature_names: tuple[str, ...]
    event_nodes: int
    event_edges: int
    node_features: Tensor
    edge_index: Tensor
    edge_features: Tensor
    node_id: Tensor
    edge_id: Tensor
    owns_edge: Tensor
    send_index: Tensor
    send_splits: tuple[int, ...]
    recv_splits: tuple[int, ...]
    y: Tensor | None = None
    hit_id: Tensor | None = None
    particle_id: Tensor | None = None
    hit_weight: Tensor | None = None
    modules: Tensor | None = None
    particles: ParticleTable | None = None

    @property
    def n_nodes(self) -> int:
        return self.node_features.shape[0]

    @property
    def n_edges(self) -> int:
        return self.edge_index.shape[1]


def is_ordered(edge_index: Tensor) -> bool:
    """Says whether edges [2, E] ascend by (destination, source); equal ones may follow."""
    for start in range(0, edge_index.shape[1] - 1, AT_A_TIME):
        source, destination = edge_index[:, start : start + AT_A_TIME + 1]
        rises = destination[1:] > destination[:-1]
        rises |= (destination[1:] == destination[:-1]) & (source[1:] >= source[:-1])
        if not rises.all():
            return False
    return True


def edge_order(edge_index: Tensor, n_nodes: int) -> Tensor:
    """Returns the permutation that sorts edges by (destination, source): [2, E] -> [E]."""
    if is_ordered(edge_index):
        return torch.arange(edge_index.shape[1])
    return _sorting(edge_index, n_nodes)


def _sorting(edge_index: Tensor, n_nodes: int) -> Tensor:
    key = torch.add(edge_index[0], edge_index[1], alpha=max(n_nodes, 1))
    return torch.argsort(key, stable=True)


def whole_sector(graph: EventGraph) -> Sector:
    """Returns the only sector of an uncut graph, which shares the graph's tensors if its edges are
    in order, as those of built graphs are.
    """
    if is_ordered(graph.edge_index):
        order = torch.arange(graph.n_edges)
    else:
        order = _sorting(graph.edge_index, graph.n_nodes)
        graph = graph.take_edges(order)
    return Sector(
        event=graph.name,
        part=0,
        parts=1,
        n_owned=graph.n_nodes,
        node_feature_names=graph.node_feature_names,
        edge_feature_names=graph.edge_feature_names,
        event_nodes=graph.n_nodes,
        event_edges=graph.n_edges,
        node_features=graph.node_features,
        edge_index=graph.edge_index,
        edge_features=graph.edge_features,
        node_id=torch.arange(graph.n_nodes),
        edge_id=order,
        owns_edge=torch.ones(graph.n_edges, dtype=torch.bool),
        send_index=torch.empty(0, dtype=torch.int64),
        send_splits=(0,),
        recv_splits=(0,),
        y=graph.y,
        hit_id=graph.hit_id,
        particle_id=graph.particle_id,
        hit_weight=graph.hit_weight,
        modules=graph.modules,
        particles=graph.particles,
    )


def empty_sector(
    node_feature_names: tuple[str, ...], edge_feature_names: tuple[str, ...]
) -> Sector:
    """Returns a sector without nodes, for a rank that has no event in a micro-step."""
    none = torch.empty(0, dtype=torch.int64)
    return Sector(
        event="",
        part=0,
        parts=1,
        n_owned=0,
        node_feature_names=node_feature_names,
        edge_feature_names=edge_feature_names,
        event_nodes=0,
        event_edges=0,
        node_features=torch.empty(0, len(node_feature_names)),
        edge_index=torch.empty(2, 0, dtype=torch.int64),
        edge_features=torch.empty(0, len(edge_feature_names)),
        node_id=none,
        edge_id=none,
        owns_edge=torch.empty(0, dtype=torch.bool),
        send_index=none,
        send_splits=(0,),
        recv_splits=(0,),
        y=torch.empty(0, dtype=torch.bool),
    )
