"""Random graphs with everything that has tripped halo exchanges, whole and cut into sectors.

Shapes: N nodes, E edges.
"""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from bigtrk.graphs.event_graph import EventGraph
from bigtrk.graphs.sector import Sector
from partition.sectors import cut

KINDS = (
    "directed",
    "symmetric",
    "skipped layers",
    "hub",
    "self loops",
    "repeated edges",
    "isolated nodes",
    "empty sector",
    "sector of one node",
    "sector without edges",
    "no cut edges",
    "no edges",
)
# No usual widths of layers: the rows of nodes and of edges are known by their numbers. So few edges
# that no sector knows all nodes.
N_NODES, N_EDGES = 97, 158


@cache
def draw(
    kind: str, parts: int, n_node_features: int, n_edge_features: int
) -> tuple[EventGraph, list[Sector]]:
    """Draws a graph that has what `kind` names, in float64, and cuts it into `parts` sectors; the
    same in every call.
    """
    generator = torch.Generator().manual_seed(100 * KINDS.index(kind) + parts)
    owner = _owners(kind, parts, generator)
    ends = torch.cat([*_edges(kind, owner, generator)], dim=1)[:, :N_EDGES]
    ends = ends[:, torch.randperm(ends.shape[1], generator=generator)]
    if kind == "no edges":
        ends = ends[:, :0]
    graph = EventGraph(
        name=kind,
        node_feature_names=tuple(f"node feature {i}" for i in range(n_node_features)),
        edge_feature_names=tuple(f"edge feature {i}" for i in range(n_edge_features)),
        node_features=_features(N_NODES, n_node_features, generator),
        edge_index=ends,
        edge_features=_features(ends.shape[1], n_edge_features, generator),
    )
    return graph, cut(graph, owner, parts)


def _features(n_rows: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n_rows, width, generator=generator, dtype=torch.float64)


def _owners(kind: str, parts: int, generator: torch.Generator) -> Tensor:
    """Draws the sector of each node: [N]."""
    if kind == "empty sector":
        return torch.randint(parts - 1, (N_NODES,), generator=generator)
    if kind == "sector of one node":
        owner = torch.randint(parts - 1, (N_NODES,), generator=generator)
        owner[N_NODES // 2] = parts - 1
        return owner
    if kind == "sector without edges":
        return torch.arange(N_NODES) % parts
    return torch.randint(parts, (N_NODES,), generator=generator)


def _edges(kind: str, owner: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Lists edges [2, any], those first that make the kind; of the others no two are the same."""
    nodes = torch.arange(N_NODES)
    plain = _plain_edges(kind, owner)
    plain = plain[:, torch.randperm(plain.shape[1], generator=generator)]
    others = nodes[1:]
    hub = torch.zeros_like(others)
    special = {
        "symmetric": plain[:, : N_EDGES // 2].repeat(1, 2),
        "hub": torch.stack([torch.cat([hub, others]), torch.cat([others, hub])]),
        "self loops": nodes[::2].expand(2, -1),
        "repeated edges": plain[:, : N_EDGES // 5].repeat(1, 2),
    }.get(kind, plain[:, :0])
    if kind == "symmetric":
        special[:, N_EDGES // 2 :] = special[:, N_EDGES // 2 :].flip(0)
    return [special, plain]


def _plain_edges(kind: str, owner: Tensor) -> Tensor:
    """Lists the pairs of different nodes that the kind lets be joined: [2, any]."""
    nodes = torch.arange(N_NODES)
    ends = torch.cartesian_prod(nodes, nodes).T
    source, destination = ends
    joined = source != destination
    if kind == "symmetric":
        joined &= source < destination
    if kind == "skipped layers":  # from an inner layer to any of the outer ones
        joined &= source * 5 // N_NODES < destination * 5 // N_NODES
    if kind == "isolated nodes":
        joined &= (ends % 3 > 0).all(0)
    if kind == "sector without edges":
        joined &= (owner[ends] > 0).all(0)
    if kind == "no cut edges":
        joined &= owner[source] == owner[destination]
    return ends[:, joined]


def shuffled(whole: Sector) -> Sector:
    """Puts the nodes and the edges of a whole graph in another order, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randperm(whole.n_nodes, generator=generator)
    edges = torch.randperm(whole.n_edges, generator=generator)
    return replace(
        whole,
        node_id=nodes,
        edge_id=whole.edge_id[edges],
        node_features=whole.node_features[nodes],
        edge_index=nodes.argsort()[whole.edge_index[:, edges]],
        edge_features=whole.edge_features[edges],
    )
