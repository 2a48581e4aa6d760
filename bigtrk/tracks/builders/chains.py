"""Components in which nothing is to be decided.

Shapes: N hits, K edges.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bigtrk.tracks.builders.builder import NO_TRACK, numbered
from bigtrk.tracks.builders.components import adjacency, components
from bigtrk.tracks.builders.outward import Edges

FindPaths = Callable[[Edges], NDArray[np.int64]]  # the path of each hit [N], or NO_TRACK


def chains_and_paths(
    edges: Edges, n_hits: int, min_hits: int, find_paths: FindPaths
) -> NDArray[np.int64]:
    """Returns tracks [N]: simple chains, and what `find_paths` makes of the other edges.

    A simple chain is a component whose hits have one edge in and one out at most.
    """
    joined = adjacency(edges.source, edges.destination, n_hits)
    component = components(joined)
    outgoing = np.diff(joined.indptr)
    incoming = np.bincount(joined.indices, minlength=n_hits)
    branched = np.zeros(n_hits, bool)
    branched[component[(outgoing > 1) | (incoming > 1)]] = True
    in_chain = ~branched[component]
    path = find_paths(edges.where(~in_chain[edges.source]))
    apart = np.where(path == NO_TRACK, NO_TRACK, path + n_hits)  # components are fewer than hits
    return numbered(np.where(in_chain, component, apart), min_hits)
