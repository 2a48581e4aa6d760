"""The geometric cut: wedges in the azimuth phi."""

import numpy as np
from numpy.typing import NDArray

from bigtrk.errors import InputError
from bigtrk.graphs.event_graph import EventGraph
from partition.adjacency import Integers, node_weight


def wedges(graph: EventGraph, parts: int) -> Integers:
    """Returns the wedge of each node, in 0..parts-1 by ascending phi: [N] int64.

    The wedges are balanced in edges, as METIS's parts are; neighbours in phi merge under
    `part * K // parts`.

    Raises:
        InputError: the graph's nodes have neither phi nor x and y.
    """
    order = np.argsort(azimuth(graph), kind="stable")
    weight = node_weight(graph.edge_index.numpy(), graph.n_nodes)[order]
    # A node belongs to the wedge that its weight's midpoint falls in; doubled to stay in integers.
    midpoint = 2 * np.cumsum(weight) - weight
    part = np.empty(graph.n_nodes, dtype=np.int64)
    part[order] = midpoint * parts // max(2 * int(weight.sum()), 1)
    return part


def azimuth(graph: EventGraph) -> NDArray[np.float32]:
    """Returns a value per node, [N], that ascends with phi: phi in any unit, or atan2(y, x)."""
    columns = dict(zip(graph.node_feature_names, graph.node_features.numpy().T, strict=True))
    if "phi" in columns:
        return np.asarray(columns["phi"])
    if "x" in columns and "y" in columns:
        return np.asarray(np.arctan2(columns["y"], columns["x"]))
    raise InputError(
        f"{graph.name}: wedges need the node feature phi, or x and y, but the graph has "
        f"{', '.join(graph.node_feature_names)}; use --method metis"
    )
