"""Sums over a sector's ids, by which the sectors of an event are known to fit together.

A rank reads one sector. What it sends must be what others expect, and each node and edge must be
owned once, which it cannot see. So the record of an event's file holds these sums of all sectors:
each is compared with its sector when that is read, and all with each other when the folder is
opened. All sums are modulo 2^64. They reveal mistakes, not malice: other ids of the same sums can
be contrived.
"""

import torch
from torch import Tensor

from bigtrk.disk.hashing import mixed
from bigtrk.graphs.sector import Sector

MODULUS = 2**64


def sector_sums(sector: Sector) -> dict[str, int]:
    """Computes the sums of one sector.

    own_edges: the number of edges it owns. node_ids, node_squares, edge_ids, edge_squares: sums of
    the ids of the nodes and edges it owns, and of their squares. halo: the sum of hashes of the
    rows sent, less those received, each with its owner, receiver and node id. cut: the sum of
    hashes of the cut edges owned, less the others, each with its id and the node ids of its ends.
    """
    foreign = sector.edge_id[~sector.owns_edge]
    owned = sector.node_id[: sector.n_owned]
    sums = {
        "own_edges": sector.n_edges - len(foreign),
        "node_ids": int(owned.sum()),
        "node_squares": _squares(owned),
        "edge_ids": int(sector.edge_id.sum()) - int(foreign.sum()),
        "edge_squares": _squares(sector.edge_id) - _squares(foreign),
        "halo": _halo(sector),
        "cut": _cut(sector),
    }
    return {name: value % MODULUS for name, value in sums.items()}


def event_sums(nodes: int, edges: int) -> dict[str, int]:
    """Returns what the sums of all sectors of an event add up to."""
    sums = {
        "own_edges": edges,
        "node_ids": nodes * (nodes - 1) // 2,
        "node_squares": nodes * (nodes - 1) * (2 * nodes - 1) // 6,
        "edge_ids": edges * (edges - 1) // 2,
        "edge_squares": edges * (edges - 1) * (2 * edges - 1) // 6,
        "halo": 0,
        "cut": 0,
    }
    return {name: value % MODULUS for name, value in sums.items()}


def _squares(ids: Tensor) -> int:
    return int(torch.dot(ids, ids))


def _halo(sector: Sector) -> int:
    receiver = _each(sector.send_splits)
    owner = _each(sector.recv_splits)
    sent, received = sector.node_id[sector.send_index], sector.node_id[sector.n_owned :]
    of_sent = (sector.part * sector.parts + receiver) * sector.event_nodes + sent
    of_received = (owner * sector.parts + sector.part) * sector.event_nodes + received
    return int(mixed(of_sent).sum()) - int(mixed(of_received).sum())


def _each(splits: tuple[int, ...]) -> Tensor:
    """Returns the part that each row goes to or comes from: [parts] -> [sum of splits]."""
    return torch.arange(len(splits)).repeat_interleave(torch.tensor(splits))


def _cut(sector: Sector) -> int:
    rows = (~((sector.edge_index[0] < sector.n_owned) & sector.owns_edge)).nonzero()[:, 0]
    source, destination = sector.node_id[sector.edge_index[:, rows]]
    hashes = mixed(mixed(sector.edge_id[rows]) ^ (source * sector.event_nodes + destination))
    own = sector.owns_edge[rows]
    return int(hashes[own].sum()) - int(hashes[~own].sum())
