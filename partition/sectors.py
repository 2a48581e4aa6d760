"""Cuts an event graph into sectors with halos (docs/design.md, "Exact halo training")."""

import numpy as np
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph, Sector, columns_at, edge_order


def cut(graph: EventGraph, part: Tensor, parts: int) -> list[Sector]:
    """Cuts `graph` into sectors 0..parts-1. part [N] int64: node n is owned by sector part[n].

    The halo of a sector: the nodes, owned elsewhere, at the ends of edges that touch its own nodes.
    """
    assert part.shape == (graph.n_nodes,), "one part per node"
    order = edge_order(graph.edge_index, graph.n_nodes)
    # A look-up before sorting, in one byte or int32, takes a third of the time of
    # part[edge_index[:, order]].
    small = part.to(torch.uint8 if parts <= 2**8 else torch.int32)
    owner = small[graph.edge_index].index_select(1, order)
    crossing = owner[0] != owner[1]
    edges = _edges_by_part(order, owner, crossing, parts)
    owned = _group(torch.arange(graph.n_nodes), part, parts)
    halo, halo_counts = _halo(graph.edge_index[:, order[crossing]], part, parts)
    asked_counts = halo_counts.T
    asked = halo[part[halo].argsort(stable=True)]  # by (owner, receiver, node id)
    sent = torch.split(asked, asked_counts.sum(1).tolist())
    received = torch.split(halo, halo_counts.sum(1).tolist())
    row = torch.empty(graph.n_nodes, dtype=torch.int64)
    return [
        _sector(
            graph,
            row,
            part=index,
            owned=owned[index],
            halo=received[index],
            edge_id=edges[index],
            sent=sent[index],
            send_splits=tuple(asked_counts[index].tolist()),
            recv_splits=tuple(halo_counts[index].tolist()),
        )
        for index in range(parts)
    ]


def _edges_by_part(order: Tensor, owner: Tensor, crossing: Tensor, parts: int) -> list[Tensor]:
    """Returns each sector's edges, in the order of `order` [E], cut edges last. owner: [2, E]."""
    inside = _group(order[~crossing], owner[1, ~crossing], parts)
    # Both copies of a cut edge stay next to each other, so the stable sort keeps the order.
    copies = order[crossing].repeat_interleave(2)
    across = _group(copies, owner[:, crossing].T.reshape(-1), parts)
    return [torch.cat(blocks) for blocks in zip(inside, across, strict=True)]


def _halo(cut_edges: Tensor, part: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Returns halo nodes [H] of cut edges [2, C], by (receiver, owner, id), and counts [K, K]."""
    n_nodes = max(len(part), 1)
    owner = part[cut_edges]
    pair = owner.flip(0) * parts + owner  # receiver, owner
    key = torch.unique(pair * n_nodes + cut_edges)
    counts = torch.bincount(key // n_nodes, minlength=parts * parts)
    return key % n_nodes, counts.view(parts, parts)


def _sector(
    graph: EventGraph,
    row: Tensor,
    *,
    part: int,
    owned: Tensor,
    halo: Tensor,
    edge_id: Tensor,
    sent: Tensor,
    send_splits: tuple[int, ...],
    recv_splits: tuple[int, ...],
) -> Sector:
    """Makes one sector; `row` [N] is a scratch tensor, reused for each sector."""
    node_id = torch.cat([owned, halo])
    row[node_id] = torch.arange(len(node_id))
    edge_index = row[graph.edge_index[:, edge_id]]
    return Sector(
        event=graph.name,
        part=part,
        parts=len(send_splits),
        n_owned=len(owned),
        node_feature_names=graph.node_feature_names,
        edge_feature_names=graph.edge_feature_names,
        event_nodes=graph.n_nodes,
        event_edges=graph.n_edges,
        edge_index=edge_index,
        node_id=node_id,
        edge_id=edge_id,
        owns_edge=edge_index[1] < len(owned),
        send_index=row[sent],
        send_splits=send_splits,
        recv_splits=recv_splits,
        **columns_at([graph], node_id, edge_id),
        particles=graph.particles,
    )


def _group(values: Tensor, key: Tensor, groups: int) -> list[Tensor]:
    """Splits values [M] by `key` [M] in 0..groups-1, keeping their order, into `groups` tensors."""
    # NumPy sorts 16 bits by radix, in a time that is linear in M, and longer integers by merging.
    short = key.numpy().astype(np.uint16) if groups <= 2**16 else key.numpy()
    order = torch.from_numpy(np.argsort(short, kind="stable"))
    return list(torch.split(values[order], torch.bincount(key, minlength=groups).tolist()))
