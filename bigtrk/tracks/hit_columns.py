"""The columns of an event's hits, in double precision.

Shapes: N hits, E edges.
"""

import numpy as np
from torch import Tensor

from bigtrk.errors import InputError
from bigtrk.graphs.sector import Sector
from bigtrk.tracks.bins import Floats
from bigtrk.tracks.builders.builder import ScoredGraph


def hit_column(event: Sector, name: str) -> Floats:
    """Returns a feature of each hit [N].

    Raises:
        InputError: the graph does not store it.
    """
    if name not in event.node_feature_names:
        raise InputError(f"{event.event}: has no node feature {name!r}; build its graph again")
    column = event.node_features[:, event.node_feature_names.index(name)]
    return column.double().numpy()


def scored_graph(event: Sector, scores: Tensor) -> ScoredGraph:
    """Returns what track builders read of a whole event: scores [E].

    Raises:
        InputError: the graph does not store where its hits are.
    """
    r, phi, z = (hit_column(event, name) for name in ("r", "phi", "z"))
    position = np.stack([r * np.cos(phi), r * np.sin(phi), z], axis=1)
    modules = None if event.modules is None else event.modules.numpy()
    return ScoredGraph(event.edge_index.numpy(), scores.numpy(), position, modules)
