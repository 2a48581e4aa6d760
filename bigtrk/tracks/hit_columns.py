"""The columns of an event's hits, in double precision.

Shapes: N hits, E edges.
"""

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.features import eta_of
from bigtrk.graphs.sector import Sector
from bigtrk.tracks.bins import Floats
from bigtrk.tracks.builders.builder import ScoredGraph


def hit_column(event: Sector, name: str) -> Floats:
    """Returns a feature of each hit [N].

    Raises:
        InputError: the graph does not store it.
    """
    if name not in event.node_feature_names:
        raise InputError(
            f"{event.event}: has no node feature {name!r}, and tracks are made of hits whose r, "
            f"phi and z are known; store them in its graph"
        )
    column = event.node_features[:, event.node_feature_names.index(name)]
    return column.double().numpy()


def hit_eta(event: Sector) -> Floats | None:
    """Returns eta of each hit [N], stored or by its r and z; None where neither is stored."""
    stored = event.node_feature_names
    if "eta" in stored:
        return hit_column(event, "eta")
    if "r" in stored and "z" in stored:
        return eta_of(hit_column(event, "r"), hit_column(event, "z"))
    return None


def scored_graph(event: Sector, scores: Tensor) -> ScoredGraph:
    """Returns what track builders read of a whole event: scores [E].

    Raises:
        InputError: the graph does not store where its hits are.
    """
    r, phi, z = (hit_column(event, name) for name in ("r", "phi", "z"))
    position = np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=1)
    modules = None if event.modules is None else event.modules.numpy()
    return ScoredGraph(event.edge_index.numpy(), scores.numpy(), position, modules)
