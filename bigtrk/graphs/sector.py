"""A sector: a rank's part of an event graph, with the halo it needs from other sectors.

Several of an event can be merged into one of a coarser cut, without the event's graph.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import AT_A_TIME, LABELS, EventGraph, ParticleTable


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


def labels_at(whole: EventGraph | Sector, nodes: Tensor, edges: Tensor) -> dict[str, Any]:
    """Returns the labels of some rows of a graph or sector by name, those that it has."""
    columns = {name: getattr(whole, name) for name in LABELS}
    return {
        name: column[edges if name == "y" else nodes]
        for name, column in columns.items()
        if column is not None
    }


def is_ordered(edge_index: Tensor) -> bool:
    """Whether edges [2, E] ascend by (destination, source); equal ones may follow."""
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
    key = torch.add(edge_index[0], edge_index[1], alpha=max(n_nodes, 1))
    return torch.argsort(key, stable=True)


def whole_sector(graph: EventGraph) -> Sector:
    """Returns the only sector of an uncut graph, which shares its tensors if edges are in order."""
    order = edge_order(graph.edge_index, graph.n_nodes)
    if not is_ordered(graph.edge_index):
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
        **{name: getattr(graph, name) for name in LABELS},
        particles=graph.particles,
    )


def empty_sector(
    node_feature_names: tuple[str, ...], edge_feature_names: tuple[str, ...]
) -> Sector:
    """Returns a sector without nodes, for a rank that has no event in a micro-step."""
    nodes, edges = (
        torch.empty(0, len(names)) for names in (node_feature_names, edge_feature_names)
    )
    no_edges, y = torch.empty(2, 0, dtype=torch.int64), torch.empty(0, dtype=torch.bool)
    names = (node_feature_names, edge_feature_names)
    return whole_sector(EventGraph("", *names, nodes, no_edges, edges, y=y))


def group(part: int, parts: int, stored: int) -> list[int]:
    """Lists the parts `old` of a cut into `stored` with old * parts // stored == part."""
    first, end = (-(-number * stored // parts) for number in (part, part + 1))
    return list(range(first, end))


def merge(sectors: list[Sector], part: int, parts: int) -> Sector:
    """Merges sectors `group(part, parts, K)` of the event's K, in order, into `part` of `parts`.

    The result equals what cutting the event's graph by `old_part * parts // K` would give.
    """
    first = sectors[0]
    stored = first.parts
    assert [sector.part for sector in sectors] == group(part, parts, stored), "not the whole group"
    owner = [_owners(sector) * parts // stored for sector in sectors]
    nodes, node_id, recv_splits = _nodes(sectors, torch.cat(owner), part, parts)
    n_owned = len(node_id) - sum(recv_splits)
    row = torch.empty(first.event_nodes, dtype=torch.int64)
    row[node_id] = torch.arange(len(node_id))
    edges, ends = _edges(sectors, owner)
    edge_index = row[ends]
    sent, send_splits = _sent(sectors, part, parts)
    return Sector(
        event=first.event,
        part=part,
        parts=parts,
        n_owned=n_owned,
        node_feature_names=first.node_feature_names,
        edge_feature_names=first.edge_feature_names,
        event_nodes=first.event_nodes,
        event_edges=first.event_edges,
        node_features=torch.cat([s.node_features for s in sectors])[nodes],
        edge_index=edge_index,
        edge_features=torch.cat([s.edge_features for s in sectors])[edges],
        node_id=node_id,
        edge_id=torch.cat([s.edge_id for s in sectors])[edges],
        owns_edge=edge_index[1] < n_owned,
        send_index=row[sent],
        send_splits=send_splits,
        recv_splits=recv_splits,
        **{
            name: torch.cat([getattr(s, name) for s in sectors])[edges if name == "y" else nodes]
            for name in LABELS
            if getattr(first, name) is not None
        },
        particles=first.particles,
    )


def _owners(sector: Sector) -> Tensor:
    """Returns the old part that owns each row, [N] int64."""
    of_halo = torch.arange(sector.parts).repeat_interleave(torch.tensor(sector.recv_splits))
    return torch.cat([torch.full((sector.n_owned,), sector.part), of_halo])


def _nodes(
    sectors: list[Sector], owner: Tensor, part: int, parts: int
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Returns rows to keep of all nodes, in the new order; their node ids; halo rows by owner."""
    node_id = torch.cat([s.node_id for s in sectors])
    # Owned nodes sort before the halo, whose owners count from 1.
    block = torch.where(owner == part, 0, owner + 1)
    rows = _first_of_each(block * max(sectors[0].event_nodes, 1) + node_id)
    halo_owner = owner[rows][block[rows] > 0]
    recv_splits = torch.bincount(halo_owner, minlength=parts)
    return rows, node_id[rows], tuple(recv_splits.tolist())


def _edges(sectors: list[Sector], owner: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the rows to keep of all edges, [E], in the new order; their ends' node ids [2, E]."""
    rows = _first_of_each(torch.cat([s.edge_id for s in sectors]))
    ends = torch.cat([s.node_id[s.edge_index] for s in sectors], dim=1)[:, rows]
    end_owner = [o[s.edge_index] for s, o in zip(sectors, owner, strict=True)]
    crossing = torch.cat([o[0] != o[1] for o in end_owner])[rows]
    order = edge_order(ends, sectors[0].event_nodes)
    order = torch.cat([order[~crossing[order]], order[crossing[order]]])
    return rows[order], ends[:, order]


def _sent(sectors: list[Sector], part: int, parts: int) -> tuple[Tensor, tuple[int, ...]]:
    """Returns the node ids other new sectors ask for, by (receiver, node id), and their numbers."""
    stored = sectors[0].parts
    node = torch.cat([s.node_id[s.send_index] for s in sectors])
    splits = torch.tensor([s.send_splits for s in sectors])
    receiver = torch.arange(stored).repeat(len(sectors)).repeat_interleave(splits.reshape(-1))
    receiver = receiver * parts // stored
    node, receiver = node[receiver != part], receiver[receiver != part]
    rows = _first_of_each(receiver * max(sectors[0].event_nodes, 1) + node)
    return node[rows], tuple(torch.bincount(receiver[rows], minlength=parts).tolist())


def _first_of_each(key: Tensor) -> Tensor:
    """Returns where each key first occurs, in ascending order of the keys: [M] -> [U]."""
    order = key.argsort(stable=True)
    ordered = key[order]
    new = torch.ones(len(key), dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return order[new]
