"""Merges an event's stored sectors to those of a coarser cut, without the event's graph."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bigtrk.graphs.event_graph import Sector, columns_at, edge_order


def group(part: int, parts: int, stored: int) -> list[int]:
    """Lists the stored sectors (of `stored`) that merge into part `part` of `parts`, ascending."""
    first, end = (-(-number * stored // parts) for number in (part, part + 1))
    return list(range(first, end))


def merge(sectors: list[Sector], part: int, parts: int) -> Sector:
    """Merges the stored sectors `group(part, parts, K)`, given in order, to part `part` of `parts`.

    The result equals a cut of the event's graph with `old_part * parts // K` as each node's part.
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
    return replace(
        first,
        part=part,
        parts=parts,
        n_owned=n_owned,
        edge_index=edge_index,
        node_id=node_id,
        edge_id=torch.cat([s.edge_id for s in sectors])[edges],
        owns_edge=edge_index[1] < n_owned,
        send_index=row[sent],
        send_splits=send_splits,
        recv_splits=recv_splits,
        **columns_at(sectors, nodes, edges),
    )


def _owners(sector: Sector) -> Tensor:
    """Returns which stored part owns each node row, [N] int64."""
    of_halo = torch.arange(sector.parts).repeat_interleave(torch.tensor(sector.recv_splits))
    return torch.cat([torch.full((sector.n_owned,), sector.part), of_halo])


def _nodes(
    sectors: list[Sector], owner: Tensor, part: int, parts: int
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Returns the new sector's node rows among all, sorted; their ids; halo rows by owner."""
    node_id = torch.cat([s.node_id for s in sectors])
    # Owned nodes sort before the halo, whose owners count from 1.
    block = torch.where(owner == part, 0, owner + 1)
    rows = _first_of_each(block * max(sectors[0].event_nodes, 1) + node_id)
    halo_owner = owner[rows][block[rows] > 0]
    recv_splits = torch.bincount(halo_owner, minlength=parts)
    return rows, node_id[rows], tuple(recv_splits.tolist())


def _edges(sectors: list[Sector], owner: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the new sector's edge rows among all, [E], sorted; node ids of their ends, [2, E]."""
    rows = _first_of_each(torch.cat([s.edge_id for s in sectors]))
    ends = torch.cat([s.node_id[s.edge_index] for s in sectors], dim=1)[:, rows]
    end_owner = [o[s.edge_index] for s, o in zip(sectors, owner, strict=True)]
    crossing = torch.cat([o[0] != o[1] for o in end_owner])[rows]
    order = edge_order(ends, sectors[0].event_nodes)
    order = torch.cat([order[~crossing[order]], order[crossing[order]]])
    return rows[order], ends[:, order]


def _sent(sectors: list[Sector], part: int, parts: int) -> tuple[Tensor, tuple[int, ...]]:
    """Returns the ids of nodes to send, by (receiver, node id), and their number per receiver."""
    stored = sectors[0].parts
    node = torch.cat([s.node_id[s.send_index] for s in sectors])
    splits = torch.tensor([s.send_splits for s in sectors])
    receiver = torch.arange(stored).repeat(len(sectors)).repeat_interleave(splits.reshape(-1))
    receiver = receiver * parts // stored
    node, receiver = node[receiver != part], receiver[receiver != part]
    rows = _first_of_each(receiver * max(sectors[0].event_nodes, 1) + node)
    return node[rows], tuple(torch.bincount(receiver[rows], minlength=parts).tolist())


def _first_of_each(key: Tensor) -> Tensor:
    """Returns the first index of each distinct key, by ascending key: [M] -> [U]."""
    return torch.from_numpy(np.unique(key.numpy(), return_index=True)[1])
