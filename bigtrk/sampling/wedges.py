"""Wedges: an event's hits (N nodes, E edges) between two planes through the beam line."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import Sector, columns_at

# Features that change sign in a reflection: at a plane through the beam line, and at the plane
# z = 0.
_OF_PHI = ("phi", "dphi", "phislope", "rphislope")
_OF_Z = ("z", "eta", "dz", "deta")


def cut_wedge(event: Sector, part: int, parts: int, offset: float) -> Sector:
    """Returns wedge `part` of `parts` of a whole event; wedge 0 begins at phi = `offset` (rad)."""
    turned = (_column(event, "phi") - offset) / (2 * math.pi)
    wedge = (turned.remainder(1.0) * parts).long().clamp(max=parts - 1)
    inside = wedge == part
    node = inside.nonzero()[:, 0]
    edge = inside[event.edge_index].all(dim=0).nonzero()[:, 0]
    row = torch.full((event.n_nodes,), -1)
    row[node] = torch.arange(len(node))
    return replace(
        event,
        part=part,
        parts=parts,
        n_owned=len(node),
        edge_index=row[event.edge_index[:, edge]],
        node_id=event.node_id[node],
        edge_id=event.edge_id[edge],
        owns_edge=torch.ones(len(edge), dtype=torch.bool),
        send_splits=(0,) * parts,
        recv_splits=(0,) * parts,
        **columns_at([event], node, edge),
    )


def turn(event: Sector, angle: float, mirror_phi: bool, mirror_z: bool) -> Sector:
    """Rotates an event around the beam line by `angle` (rad), then mirrors phi and z if asked."""
    nodes, edges = event.node_features.clone(), event.edge_features.clone()
    mirrored = (_OF_PHI if mirror_phi else ()) + (_OF_Z if mirror_z else ())
    for features, names in ((nodes, event.node_feature_names), (edges, event.edge_feature_names)):
        for i, name in enumerate(names):
            if name == "phi":
                features[:, i] = (features[:, i] + angle + math.pi) % (2 * math.pi) - math.pi
            if name in mirrored:
                features[:, i] *= -1
    return replace(event, node_features=nodes, edge_features=edges)


def _column(event: Sector, name: str) -> Tensor:
    if name not in event.node_feature_names:
        raise InputError(f"{event.event}: no feature {name!r} for wedges; set sampling.method=none")
    return event.node_features[:, event.node_feature_names.index(name)]
